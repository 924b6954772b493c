"""Scripted executions: calls as token sequences, and the links that follow from them, found by plain comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gyre.role import Role
from gyre.trajectory.call import Finish
from gyre.trajectory.call_links import CallLinks
from gyre.trajectory.roles import find_roles


@dataclass(frozen=True)
class ScriptedCall:
    """A call by its tokens, with what a harness may tell of it."""

    input: tuple[int, ...]
    output: tuple[int, ...]
    finish: Finish = Finish.TOOL_CALLS
    thread: str = ""
    parent_thread: str = ""
    label: Role | None = None
    by_policy: bool = True


def shared_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of equal leading tokens."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def links_of(calls: Sequence[ScriptedCall], harness: str = "") -> CallLinks:
    """Return the links of calls in commit order."""
    parent, shared = [], []
    for number, call in enumerate(calls):
        prefixes = [shared_prefix(call.input, earlier.input + earlier.output) for earlier in calls[:number]]
        longest = max(prefixes, default=0)
        shared.append(longest)
        parent.append(max(i for i, prefix in enumerate(prefixes) if prefix == longest) if longest else -1)
    nowhen = np.full(len(calls), np.nan)
    return CallLinks(
        harness=harness,
        label=tuple(call.label for call in calls),
        thread=tuple(call.thread for call in calls),
        parent_thread=tuple(call.parent_thread for call in calls),
        by_policy=np.array([call.by_policy for call in calls], np.bool_),
        parent=np.array(parent, np.int32),
        shared_tokens=np.array(shared, np.int64),
        input_tokens=np.array([len(call.input) for call in calls], np.int64),
        output_tokens=np.array([len(call.output) for call in calls], np.int64),
        start_s=nowhen,
        end_s=nowhen,
        finish=tuple(call.finish for call in calls),
    )


def roles_of(calls: Sequence[ScriptedCall], harness: str = "") -> list[Role]:
    """Return the role found for each call."""
    return [finding.role for finding in find_roles(links_of(calls, harness))]
