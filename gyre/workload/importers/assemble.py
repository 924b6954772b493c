"""Numbers drafted calls, finds what releases each of them, and builds the trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from ..schema import CALLS, TOOLS, ScoreStatus, WaitKind
from ..trace import Trace, groups_of, with_sums
from .drafts import DraftCall, DraftExecution, DraftTool
from .release import Release, releases


def assemble(drafts: Iterable[DraftExecution], *, join_tolerance_s: float = 0.0) -> Trace:
    """The trace of the drafted executions.

    Calls are numbered by start. Where a start is unknown, or a call would stand before its predecessor in the thread or
    before its parent, the order of the source is kept. See `release.releases` for `after_call` and joins;
    `join_tolerance_s` is the precision of the source's times.
    """
    executions: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    for draft in drafts:
        group_id = draft.group_id or draft.execution_id
        executions.append(_execution_row(draft, group_id))
        tasks.append({"group_id": group_id, "task": draft.task})
        ordered = in_order(draft.calls)
        index = {id(call): number for number, call in enumerate(ordered)}
        for number, release in enumerate(releases(ordered, join_tolerance_s)):
            calls.append(_call_row(draft.execution_id, number, ordered[number], release, index))
        tools.extend(_tool_row(draft.execution_id, tool, index) for tool in draft.tools if id(tool.call) in index)
    call_frame = _frame(calls, CALLS)
    execution_frame = with_sums(pl.DataFrame(executions, infer_schema_length=None), call_frame)
    task_frame = pl.DataFrame(tasks, schema={"group_id": pl.String, "task": pl.String})
    groups = groups_of(execution_frame, task_frame)
    return Trace.from_frames(
        executions=execution_frame, groups=groups, calls=call_frame, tools=_frame(tools, TOOLS), source="import"
    )


def in_order(calls: Sequence[DraftCall]) -> list[DraftCall]:
    """Calls by start, each after the one before it in its thread, after its parent and after the call that spawned it.

    In `calls` these come first too; equal starts, and calls without one, keep that order.
    """
    key: dict[int, float] = {}
    last_of: dict[int, float] = {}
    for call in calls:
        floor = last_of.get(call.thread, 0.0)
        for earlier in (call.parent, call.spawned_by):
            floor = floor if earlier is None else max(floor, key[id(earlier)])
        key[id(call)] = last_of[call.thread] = floor if call.start_s is None else max(floor, call.start_s)
    return sorted(calls, key=lambda call: key[id(call)])


def _execution_row(draft: DraftExecution, group_id: str) -> dict[str, Any]:
    return {
        "execution_id": draft.execution_id,
        "group_id": group_id,
        "source": draft.source,
        "harness": draft.harness,
        "model": draft.model,
        "outcome": draft.outcome.value,
        "reward": draft.reward,
        "score_status": _score_status(draft).value,
        "setup_s": draft.setup_s,
        "scoring_s": draft.scoring_s,
        "wall_s": draft.wall_s,
        "human_in_loop": draft.human_in_loop,
        "censored": draft.censored,
        "synthetic": False,
        "token_quality": draft.token_quality.value,
        "time_quality": draft.time_quality.value,
        "prefix_quality": draft.prefix_quality.value,
    }


def _score_status(draft: DraftExecution) -> ScoreStatus:
    if draft.reward is not None:
        return ScoreStatus.SCORED
    return ScoreStatus.FAILED if draft.score_failed else ScoreStatus.UNSCORED


def _call_row(
    execution_id: str, number: int, call: DraftCall, release: Release, index: dict[int, int]
) -> dict[str, Any]:
    return {
        "execution_id": execution_id,
        "call_index": number,
        "thread": call.thread,
        "parent_thread": call.parent_thread,
        "role": call.role.value,
        "agent": call.agent,
        "parent_call": None if call.parent is None else index[id(call.parent)],
        "relation": call.relation.value,
        "prefix_tokens": call.prefix_tokens,
        "dropped_tokens": call.dropped_tokens,
        "input_tokens": call.input_tokens,
        "output_tokens": call.output_tokens,
        "cached_tokens": call.cached_tokens,
        "after_call": release.after_call,
        "wait_s": release.wait_s,
        "wait_kind": (release.wait_kind or call.wait_kind or WaitKind.TOOL).value,
        "start_s": call.start_s,
        "model_s": call.model_s,
        "finish_reason": call.finish_reason,
        "model": call.model,
    }


def _tool_row(execution_id: str, tool: DraftTool, index: dict[int, int]) -> dict[str, Any]:
    return {
        "execution_id": execution_id,
        "call_index": index[id(tool.call)],
        "tool_call_id": tool.tool_call_id,
        "tool": tool.tool,
        "start_s": tool.start_s,
        "duration_s": tool.duration_s,
        "failed": tool.failed,
    }


def _frame(rows: list[dict[str, Any]], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    columns = {name: [row[name] for row in rows] for name in schema}
    return pl.DataFrame([pl.Series(name, columns[name], dtype=dtype) for name, dtype in schema.items()])
