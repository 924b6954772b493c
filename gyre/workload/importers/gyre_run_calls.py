"""From an execution's recorded calls to drafts: threads, parents and prefixes by the token ids, starts and ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ...role import Role
from ..schema import Relation
from .drafts import DraftCall

if TYPE_CHECKING:
    from ...trajectory.call import CallRecord
    from ...trajectory.tree import Refusal

_SUMMARIES: Final = (Role.MAIN_SUMMARY, Role.SUB_AGENT_SUMMARY)
_BESIDE: Final = (Role.SUB_AGENT, Role.SUB_AGENT_SUMMARY, Role.SIDE)  # conversations of their own


def drafted(name: str, found: Iterable[CallRecord | Refusal]) -> tuple[list[DraftCall], list[Refusal]]:
    """Return the calls of an execution that can be used, in the order of their commits, and those that cannot."""
    from ...trajectory.building import TreeBuilder
    from ...trajectory.tree import Refusal

    builder = TreeBuilder(name)
    records: dict[str, CallRecord] = {}
    unread: list[Refusal] = []
    for call in found:
        if isinstance(call, Refusal):
            unread.append(call)
        elif builder.add(call) is None:
            records[call.call_id] = call
    nearest = builder.nearest()
    tree = builder.close()
    roles = [list(Role)[code] for code in tree.calls.role.tolist()]
    drafts: list[DraftCall] = []
    for row, call_id in enumerate(nearest.call_id):
        draft = _draft(records[call_id], roles[row])
        parent = int(nearest.parent[row])
        if parent >= 0:
            _relate(draft, drafts[parent], int(nearest.shared_tokens[row]))
        drafts.append(draft)
    _set_threads(drafts, [records[call_id] for call_id in nearest.call_id])
    return drafts, [*unread, *tree.refused]


def _draft(call: CallRecord, role: Role) -> DraftCall:
    start_s = call.start_s if math.isnan(call.queued_s) else call.queued_s
    timed = not (math.isnan(start_s) or math.isnan(call.end_s))
    return DraftCall(
        thread=0,
        input_tokens=len(call.input_ids),
        output_tokens=len(call.output_ids),
        role=role,
        cached_tokens=call.cached_tokens if call.cached_tokens >= 0 else None,
        start_s=start_s if timed else None,
        model_s=max(0.0, call.end_s - start_s) if timed else None,
        finish_reason=call.finish.value,
        model=call.model or None,
    )


def _relate(call: DraftCall, parent: DraftCall, shared: int) -> None:
    """Set parent, relation, prefix and dropped tokens."""
    call.parent, call.prefix_tokens = parent, shared
    call.dropped_tokens = parent.context_tokens - shared
    if shared == parent.context_tokens:
        call.relation = Relation.APPEND
    elif shared == call.input_tokens == parent.input_tokens:
        call.relation = Relation.RETRY
    else:
        call.relation = Relation.COMPACTION if parent.role in _SUMMARIES else Relation.BRANCH


def _set_threads(drafts: Sequence[DraftCall], records: Sequence[CallRecord]) -> None:
    """Number the threads, 0 the main one.

    A thread that the harness names is one. Calls without a name are of the main thread, but for those of sub-agents and
    side calls: such a call goes on with the thread of its parent if that is of its kind, else it opens one.
    """
    main = next((record.thread for draft, record in zip(drafts, records, strict=True) if draft.role is Role.MAIN), "")
    threads: dict[str, tuple[int, int]] = {}  # number and parent's number, by name
    for draft, record in zip(drafts, records, strict=True):
        beside, parent = draft.role in _BESIDE, draft.parent
        if record.thread and record.thread != main:
            name = record.thread
        elif not beside:
            continue
        elif parent is not None and parent.thread and parent.role in _BESIDE:
            draft.thread, draft.parent_thread = parent.thread, parent.parent_thread
            continue
        else:
            name = f"\0{len(threads)}"  # no name of a harness
        if name not in threads:
            threads[name] = len(threads) + 1, threads.get(record.parent_thread, (0, 0))[0]
        draft.thread, draft.parent_thread = threads[name]
