"""Reads Parquet tables of executions and calls (and tools), a first normalisation of public traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from ...errors import InputError
from ...outcome import Outcome
from ...role import Role
from ..findings import Report
from ..schema import Quality, Relation, WaitKind
from ..trace import Trace, conform
from .assemble import assemble
from .drafts import DraftCall, DraftExecution
from .fields import count
from .log import ImportLog
from .partial_output import flag_partial_output
from .recorded_tools import asked_tools

SUFFIX: Final = ".executions.parquet"
COMPACTED_SHARE: Final = 0.8  # measured: compactions leave under 48 % of the context, other branches over 92 %
ROUNDING_S: Final = 1.0  # precision of times where people were in the loop (kv-cache-tester)
_EXECUTION_COLUMNS: Final = [
    "execution_id",
    "source",
    "group_id",
    "harness",
    "model",
    "wall_us",
    "outcome",
    "reward",
    "human_in_loop",
]
_CALL_COLUMNS: Final = [
    "execution_id",
    "call_seq",
    "thread",
    "role",
    "agent_kind",
    "parent_call_seq",
    "relation",
    "prefix_tokens",
    "dropped_tokens",
    "input_tokens",
    "output_tokens",
    "start_us",
    "llm_us",
    "wait_us",
    "wait_kind",
    "finish",
    "model",
    "cache_read",
]
_TOOL_COLUMNS: Final = ["name", "err", "thread", "execution_id", "start_us", "dur_us"]
_OUTCOMES: Final = {"ok": Outcome.COMPLETED, "completed": Outcome.COMPLETED, "timeout": Outcome.HARNESS_TIMEOUT}


def detect(path: Path) -> bool:
    """A file `NAME.executions.parquet`, or a folder with one or more of them, each with `NAME.calls.parquet` beside."""
    return bool(_sets(path))


def read(path: Path) -> tuple[Trace, Report]:
    """Read one set, or every set in the folder.

    Raises:
        InputError: no set is there, or a file cannot be read.
    """
    sets = _sets(path)
    if not sets:
        raise InputError(f"{path}: no NAME{SUFFIX} with NAME.calls.parquet beside it; name the file or its folder")
    log = ImportLog()
    traces = [_read_set(executions, log) for executions in sets]
    return (traces[0] if len(traces) == 1 else Trace.concat(traces)), log.report()


def _sets(path: Path) -> list[Path]:
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path] if path.name.endswith(SUFFIX) else []
    return [file for file in files if _beside(file, "calls").is_file()]


def _beside(executions: Path, table: str) -> Path:
    return executions.with_name(executions.name.removesuffix(SUFFIX) + f".{table}.parquet")


def _read_set(path: Path, log: ImportLog) -> Trace:
    calls = _parquet(_beside(path, "calls"), _CALL_COLUMNS)
    begun = calls.group_by("execution_id").agg(begin=pl.col("start_us").min())
    drafts = {
        row["execution_id"]: _execution(row, log) for row in _parquet(path, _EXECUTION_COLUMNS).iter_rows(named=True)
    }
    _add_calls(drafts, calls.join(begun, on="execution_id").sort("execution_id", "call_seq"), log)
    for draft in drafts.values():
        if draft.human_in_loop:
            _start_sub_agents_earlier(draft, log)
        else:
            _mark_compactions(draft, log)
            flag_partial_output(draft, log)
    people = any(draft.human_in_loop for draft in drafts.values())
    trace = assemble(drafts.values(), join_tolerance_s=ROUNDING_S if people else 0.0)
    tools = _beside(path, "tools")
    if not tools.is_file():
        return trace
    table = asked_tools(_parquet(tools, _TOOL_COLUMNS), calls, begun, log)
    return Trace(trace.executions, trace.groups, trace.calls, conform(table, "tools", tools.name))


def _parquet(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    try:
        return pl.read_parquet(path, columns=list(columns))
    except pl.exceptions.ColumnNotFoundError as error:
        missing = str(error).splitlines()[0]
        raise InputError(f"{path}: a column is missing ({missing}); it needs {', '.join(columns)}") from error
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not a readable Parquet file ({reason}); copy it again") from error


def _execution(row: dict[str, Any], log: ImportLog) -> DraftExecution:
    outcome = _OUTCOMES.get(row["outcome"] or "")
    if outcome is None:
        log.assume(
            "executions", "outcome_unknown", "an unknown outcome is read as completed", example=row["execution_id"]
        )
    group, people = row["group_id"], bool(row["human_in_loop"])
    return DraftExecution(
        execution_id=row["execution_id"],
        source=row["source"],
        group_id=group,
        task=None if group is None else group.split(":", 1)[-1].split("|")[0],
        harness=row["harness"],
        model=row["model"],
        outcome=outcome or Outcome.COMPLETED,
        reward=row["reward"],
        wall_s=None if row["wall_us"] is None else row["wall_us"] / 1e6,
        human_in_loop=people,
        censored=outcome is Outcome.HARNESS_TIMEOUT,
        time_quality=Quality.ROUNDED if people else Quality.RECORDED,
        prefix_quality=Quality.RECORDED if people else Quality.INFERRED,
    )


def _add_calls(drafts: dict[str, DraftExecution], calls: pl.DataFrame, log: ImportLog) -> None:
    """Add the calls, in the order of `call_seq`; one that cannot be read is logged and skipped."""
    threads: dict[str, dict[str, int]] = {}
    known: dict[tuple[str, int], DraftCall] = {}
    for row in calls.iter_rows(named=True):
        execution_id = row["execution_id"]
        draft = drafts.get(execution_id)
        if draft is None:
            log.skip("calls", "execution_missing", "its execution is not in the file", example=execution_id)
            continue
        numbers = threads.setdefault(execution_id, {"main": 0})
        thread = numbers.setdefault(row["thread"], len(numbers))
        try:
            parent = None if row["parent_call_seq"] is None else known[execution_id, row["parent_call_seq"]]
            call = _call(row, draft.human_in_loop, thread, parent)
        except (KeyError, TypeError, ValueError) as error:
            log.skip("calls", "bad_call", "a call lacks a usable field", example=f"{execution_id}: {error!r}")
            continue
        draft.calls.append(call)
        known[execution_id, row["call_seq"]] = call


def _call(row: dict[str, Any], people: bool, thread: int, parent: DraftCall | None) -> DraftCall:
    person = people and row["wait_kind"] == "human_or_start"
    return DraftCall(
        thread=thread,
        parent_thread=0 if thread else None,
        role=Role(row["role"]),
        agent=row["agent_kind"],
        parent=parent,
        relation=Relation(row["relation"]),
        prefix_tokens=row["prefix_tokens"],
        dropped_tokens=row["dropped_tokens"],
        input_tokens=count(row["input_tokens"]),
        output_tokens=count(row["output_tokens"]),
        cached_tokens=row["cache_read"],
        start_s=(row["start_us"] - row["begin"]) / 1e6,
        model_s=None if row["llm_us"] is None else row["llm_us"] / 1e6,
        wait_s=None if row["wait_us"] is None else row["wait_us"] / 1e6,
        wait_kind=WaitKind.HUMAN if person else WaitKind.TOOL,
        finish_reason=row["finish"] or None,
        model=row["model"],
    )


def _start_sub_agents_earlier(draft: DraftExecution, log: ImportLog) -> None:
    """Move each sub-agent back by its own length.

    The source stamps a sub-agent with the time of its end (its raw `t` minus `duration_ms` falls on the end of the call
    that spawned it), and these tables took that for its start.
    """
    threads: dict[int, list[DraftCall]] = {}
    for call in draft.calls:
        if call.thread:
            threads.setdefault(call.thread, []).append(call)
    for calls in threads.values():
        first = calls[0].start_s or 0.0
        shift = min(first, max(call.end_s or 0.0 for call in calls) - first)
        for call in calls:
            call.start_s = (call.start_s or 0.0) - shift
    log.assume(
        "calls",
        "sub_agent_start",
        "a sub-agent stamped with the time of its end is moved back by its own length",
        count=len(threads),
        example=draft.execution_id,
    )


def _mark_compactions(draft: DraftExecution, log: ImportLog) -> None:
    """A main-thread branch that keeps under `COMPACTED_SHARE` of its parent's input is an automatic compaction.

    Its wait holds the summary call, which the log does not list: it is no tool wait.
    """
    marked = 0
    for call in draft.calls:
        parent = call.parent
        if parent is None or call.thread or call.relation is not Relation.BRANCH:
            continue
        if call.input_tokens < COMPACTED_SHARE * parent.input_tokens:
            call.relation, call.wait_kind = Relation.COMPACTION, WaitKind.QUEUE
            marked += 1
    log.assume(
        "calls",
        "compaction",
        f"a branch that keeps under {COMPACTED_SHARE:.0%} of its parent's input is a compaction; the summary call "
        "itself is not in the source and its time is in the wait",
        count=marked,
        example=draft.execution_id,
    )
