"""Where a conversation did not go on from what it held before: compaction, edited history, and calls asked again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from ...arrays import Int32Array
from ...role import Role
from ..tree import Tree

_RUN: Final = 8  # tokens that must be equal in a row to count as carried over
_COMPACTED: Final = 0.75  # of the earlier context's length
_FOLLOWED_UNNAMED: Final = (Role.MAIN, Role.MAIN_SUMMARY)


class DropKind(StrEnum):
    """How the next call leaves the context before it."""

    COMPACTION = "compaction"  # its input is at most three quarters as long as that context
    REWRITE = "rewrite"  # its input differs before the context's end: edited or re-tokenised history, a side step
    RETRY = "retry"  # the same input again


@dataclass(frozen=True, slots=True)
class Drop:
    """Two calls in a row of one conversation, the later of which leaves behind some of the earlier's context.

    The earlier's context is its input and output. Of it `shared` tokens are the later's prefix, `carried` come back
    later in its input in runs of at least 8, and `dropped` do not come back. `added` tokens of the later's input stand
    after the shared prefix, those carried among them.
    """

    kind: DropKind
    earlier: int  # row of the call
    later: int  # row of the call
    shared: int
    dropped: int
    carried: int
    added: int

    @property
    def large(self) -> bool:
        """Whether it is worth showing among hundreds of calls: a compaction, or a twentieth of the context is gone."""
        held = self.shared + self.dropped + self.carried
        return self.kind is DropKind.COMPACTION or (self.kind is DropKind.REWRITE and 20 * self.dropped >= held)


def context_drops(tree: Tree) -> list[Drop]:
    """Return the drops of every conversation in commit order of the later call.

    A conversation is a thread, without the side calls in it. Where the harness names none, the main calls and their
    summaries are one, and no other calls are followed.
    """
    calls, roles = tree.calls, list(Role)
    latest: dict[str, int] = {}
    found = []
    for row in range(len(calls)):
        thread, role = calls.thread[row], roles[calls.role[row]]
        if role is Role.SIDE or (not thread and role not in _FOLLOWED_UNNAMED):
            continue
        earlier = latest.get(thread, -1)
        latest[thread] = row
        drop = _drop(tree, earlier, row) if earlier >= 0 else None
        if drop is not None:
            found.append(drop)
    return found


def _drop(tree: Tree, earlier: int, later: int) -> Drop | None:
    calls = tree.calls
    tip = int(calls.output_node[earlier]), int(calls.output_offset[earlier])
    new_tip = int(calls.input_node[later]), int(calls.input_offset[later])
    held = int(calls.input_tokens[earlier] + calls.output_tokens[earlier])
    now = int(calls.input_tokens[later])
    shared = _shared_tokens(tree, tip, new_tip)
    if shared == held:
        return None
    if shared == now == int(calls.input_tokens[earlier]):
        return Drop(DropKind.RETRY, earlier, later, shared, held - shared, 0, 0)
    left, added = _path_tail(tree, *tip, shared), _path_tail(tree, *new_tip, shared)
    carried = carried_tokens(left, added)
    kind = DropKind.COMPACTION if now <= _COMPACTED * held else DropKind.REWRITE
    return Drop(kind, earlier, later, shared, held - shared - carried, carried, now - shared)


def _shared_tokens(tree: Tree, one: tuple[int, int], other: tuple[int, int]) -> int:
    """Return the length of the prefix that two tips' paths share."""
    node, end = one[0], tree.node_end
    while node >= 0 and not node <= other[0] < end[node]:
        node = int(tree.node_parent[node])
    if node < 0:
        return 0
    inside = [offset for at, offset in (one, other) if at == node]
    whole = int(tree.node_start[node + 1] - tree.node_start[node])
    return int(tree.node_depth[node]) + min([whole, *inside])


def _path_tail(tree: Tree, node: int, offset: int, skip: int) -> Int32Array:
    """Return the tokens of a tip's path after its first `skip`."""
    parts = []
    while node >= 0 and tree.node_depth[node] + offset > skip:
        start = int(tree.node_start[node])
        parts.append(tree.tokens[start + max(0, skip - int(tree.node_depth[node])) : start + offset])
        node = int(tree.node_parent[node])
        offset = int(tree.node_start[node + 1] - tree.node_start[node]) if node >= 0 else 0
    return np.concatenate(parts[::-1]) if parts else np.zeros(0, np.int32)


def carried_tokens(old: Int32Array, new: Int32Array) -> int:
    """Return how many tokens of `old` lie in a run of 8 or more that stands somewhere in `new`, word for word."""
    if min(len(old), len(new)) < _RUN:
        return 0
    known = set(_runs(new))
    hits = np.fromiter((run in known for run in _runs(old)), np.bool_, len(old) - _RUN + 1)
    covered = np.zeros(len(old) + 1, np.int64)
    np.add.at(covered, np.flatnonzero(hits), 1)
    np.add.at(covered, np.flatnonzero(hits) + _RUN, -1)
    return int((np.cumsum(covered) > 0).sum())


def _runs(tokens: Int32Array) -> list[bytes]:
    """Return each run of 8 tokens in a row, as bytes, so that equal runs are equal token for token."""
    windows = np.lib.stride_tricks.sliding_window_view(np.ascontiguousarray(tokens), _RUN)
    data, width = windows.tobytes(), _RUN * tokens.itemsize
    return [data[start : start + width] for start in range(0, len(data), width)]
