"""Context trees from token sequences, and what a token-level tree says about them: a reference for path selection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gyre.role import Role
from gyre.workload.paths import ContextTrees
from gyre.workload.schema import Relation

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class TokenCall:
    """A call by its tokens."""

    input: Tokens
    output: Tokens
    role: Role = Role.MAIN

    @property
    def context(self) -> Tokens:
        """Input and output together."""
        return self.input + self.output


def common(a: Tokens, b: Tokens) -> int:
    """Number of equal leading tokens."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def trees(calls: list[TokenCall]) -> ContextTrees:
    """One execution; a call's parent is the earlier call whose context shares most leading tokens with its input."""
    parent, relation, prefix = [], [], []
    for number, call in enumerate(calls):
        shared = [common(call.input, earlier.context) for earlier in calls[:number]]
        best = max(range(number), key=lambda i: shared[i], default=-1)
        if best < 0 or not shared[best]:
            parent.append(-1)
            relation.append(Relation.ROOT)
            prefix.append(0)
            continue
        whole = shared[best] == len(calls[best].context)
        parent.append(best)
        relation.append(Relation.APPEND if whole else Relation.BRANCH)
        prefix.append(shared[best])
    return ContextTrees(
        call_start=np.array([0, len(calls)], np.int64),
        role=np.array([list(Role).index(call.role) for call in calls], np.int8),
        relation=np.array([list(Relation).index(kind) for kind in relation], np.int8),
        parent=np.array(parent, np.int32),
        prefix_tokens=np.array(prefix, np.int64),
        input_tokens=np.array([len(call.input) for call in calls], np.int64),
        output_tokens=np.array([len(call.output) for call in calls], np.int64),
    )


def unique_tokens(calls: list[TokenCall]) -> int:
    """U: nodes of the token-level tree (distinct prefixes)."""
    return len({call.context[: end + 1] for call in calls for end in range(len(call.context))})


def trained_edges(calls: list[TokenCall], leaves: list[int]) -> int:
    """N: distinct prefixes on the selected paths whose last token some call sampled there."""
    sampled = {
        call.context[: end + 1]
        for call in calls
        if call.role is not Role.SIDE
        for end in range(len(call.input), len(call.context))
    }
    on_paths = {calls[leaf].context[: end + 1] for leaf in leaves for end in range(len(calls[leaf].context))}
    return len(sampled & on_paths)
