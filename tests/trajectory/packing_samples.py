"""Samples to pack, made by hand from tries of plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from gyre.arrays import row_starts
from gyre.trajectory.samples import SampleExecutions, Samples


@dataclass
class Trie:
    """An execution as a trie: nodes are single tokens, numbered depth first; some were sampled by the policy."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)

    def path(self, node: int) -> list[int]:
        """Edges from a root to `node`."""
        edges = [node]
        while self.parents[edges[-1]] >= 0:
            edges.append(self.parents[edges[-1]])
        return edges[::-1]


def samples_of(
    tries: list[Trie], selected: list[list[int]], advantage: list[float], *, by_segment: bool = False
) -> Samples:
    """Samples whose rows are the paths to `selected` nodes; `by_segment` lets each row train all that it holds."""
    rows: list[list[int]] = []
    masks: list[list[bool]] = []
    execution: list[int] = []
    for e, (trie, ends) in enumerate(zip(tries, selected, strict=True)):
        taken: set[int] = set()
        for end in ends:
            edges = trie.path(end)
            rows.append(edges)
            masks.append([trie.sampled[n] and at > 0 and n not in taken for at, n in enumerate(edges)])
            taken.update([] if by_segment else edges)
            execution.append(e)
    trained = np.zeros(len(tries), np.int64)
    np.add.at(trained, execution, [sum(mask) for mask in masks])
    scored = np.array(advantage, np.float64)
    counted = np.count_nonzero(trained)
    flat = [(tries[e], edge) for e, edges in zip(execution, rows, strict=True) for edge in edges]
    mask = np.array([each for row in masks for each in row], np.bool_)
    noise = np.array([-0.1 - (edge * 37 % 101) / 50 for _, edge in flat], np.float32)
    return Samples(
        row_start=row_starts(np.array([len(row) for row in rows], np.int64)),
        row_execution=np.array(execution, np.int32),
        row_role=np.zeros(len(rows), np.int8),
        tokens=np.array([trie.tokens[edge] for trie, edge in flat], np.int32),
        loss_mask=mask,
        logprobs=np.where(mask, noise, np.float32(0)),
        versions=np.where(mask, np.array([edge % 3 for _, edge in flat]), -1).astype(np.int32),
        edges=np.array([edge for _, edge in flat], np.int64),
        executions=SampleExecutions(
            execution=tuple(f"execution-{e}" for e in range(len(tries))),
            group=("group",) * len(tries),
            score=scored,
            advantage=scored,
            trained_tokens=trained,
            token_weight=np.where(trained > 0, scored / np.maximum(trained * counted, 1), 0.0),
        ),
        dropped={},
    )


def random_trie(generator: np.random.Generator, size: int, vocabulary: int = 50, branching: float = 0.15) -> Trie:
    """A trie of `size` nodes with long runs and a few branches, sampled in runs."""
    children: list[list[int]] = [[]]
    tip = 0
    for node in range(1, size):
        at = int(generator.integers(node)) if generator.random() < branching else tip
        children.append([])
        children[at].append(node)
        tip = node
    trie = Trie()
    stack = [(0, -1)]
    while stack:
        node, parent = stack.pop()
        number = len(trie.tokens)
        trie.tokens.append(int(generator.integers(vocabulary)))
        trie.parents.append(parent)
        runs_on = parent >= 0 and generator.random() < 0.7
        trie.sampled.append(trie.sampled[parent] if runs_on else bool(generator.random() < 0.5))
        stack.extend((child, number) for child in reversed(children[node]))
    return trie


def random_samples(
    seed: int, *, executions: int = 3, size: int = 30, rows: int = 4, by_segment: bool = False, vocabulary: int = 50
) -> Samples:
    """Random paths, some inner nodes among their ends, as truncation leaves them; in no order."""
    generator = np.random.default_rng(seed)
    tries = [random_trie(generator, int(generator.integers(1, size + 1)), vocabulary) for _ in range(executions)]
    selected = []
    for trie in tries:
        leaves = [n for n in range(len(trie.tokens)) if n not in set(trie.parents)]
        ends = [*leaves, *generator.integers(len(trie.tokens), size=2).tolist()]
        count = min(int(generator.integers(1, rows + 1)), len(ends))
        selected.append(generator.choice(ends, size=count, replace=False).tolist())
    advantage = generator.normal(size=executions).round(3).tolist()
    return samples_of(tries, selected, advantage, by_segment=by_segment)


def samples_strategy(*, by_segment: bool = False) -> st.SearchStrategy[Samples]:
    """Samples of one to five executions."""
    return st.builds(
        random_samples,
        st.integers(0, 2**32 - 1),
        executions=st.integers(1, 5),
        size=st.integers(1, 40),
        rows=st.integers(1, 6),
        by_segment=st.just(by_segment),
    )
