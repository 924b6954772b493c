"""Where a conversation did not go on from what it held before: compaction, edited history, and calls asked again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ...arrays import Int32Array
from ...role import Role
from ..tree import Tree
from .carrying import carried_count, path_tail, shared_prefix

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
    shape = tree.node_parent, tree.node_start
    shared = int(shared_prefix(*shape, tree.node_end, tree.node_depth, *tip, *new_tip))
    if shared == held:
        return None
    if shared == now == int(calls.input_tokens[earlier]):
        return Drop(DropKind.RETRY, earlier, later, shared, held - shared, 0, 0)
    left, added = (path_tail(*shape, tree.node_depth, tree.tokens, *each, shared) for each in (tip, new_tip))
    carried = carried_tokens(left, added)
    kind = DropKind.COMPACTION if now <= _COMPACTED * held else DropKind.REWRITE
    return Drop(kind, earlier, later, shared, held - shared - carried, carried, now - shared)


def carried_tokens(old: Int32Array, new: Int32Array) -> int:
    """Return how many tokens of `old` lie in a run of 8 or more that stands somewhere in `new`, word for word."""
    return int(carried_count(old, new))
