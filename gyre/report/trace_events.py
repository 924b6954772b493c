"""The timeline for Perfetto and chrome://tracing: one process a run, one track a cell.

Format: "Trace Event Format", JSON object form. Times are microseconds; nesting on a track follows from times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from ..cluster import CellKind
from .comparison import RunResult
from .use import USE_TITLES, CellUse

TraceEvent = dict[str, Any]
_US: Final = 1e6
_CONTROL_TRACK: Final = 0  # updates and publishes; cell i is track i + 1
_COLOURS: Final[dict[str, str]] = {  # reserved colour names of the trace viewer
    CellUse.SERVING: "thread_state_running",
    CellUse.TRAINING: "thread_state_iowait",
    CellUse.WAITING_FOR_SAMPLES: "grey",
    CellUse.WAITING_FOR_OTHERS: "grey",
    CellUse.UPDATING: "rail_animation",
    CellUse.PUBLISHING: "good",
    CellUse.SWITCHING: "yellow",
    CellUse.FAILED: "terrible",
}
_COUNTERS: Final = ("water_level", "running", "capacity", "ready_groups")


def _us(time_s: float) -> float:
    return round(time_s * _US, 3)


def _metadata(pid: int, result: RunResult) -> Iterator[TraceEvent]:
    seed = result.summary.seed
    title = result.policy if seed is None else f"{result.policy}, seed {seed}"
    tracks = {_CONTROL_TRACK: "updates and publishes"}
    for spec in result.record.specs:
        tracks[spec.cell + 1] = f"cell {spec.cell}" + (
            "" if spec.kind is CellKind.SATELLITE else f" ({spec.kind.value})"
        )
    base = {"ph": "M", "pid": pid, "tid": _CONTROL_TRACK, "ts": 0}
    yield {**base, "name": "process_name", "args": {"name": title}}
    yield {**base, "name": "process_sort_index", "args": {"sort_index": pid}}
    for tid, name in tracks.items():
        yield {**base, "tid": tid, "name": "thread_name", "args": {"name": name}}
        yield {**base, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _slices(pid: int, result: RunResult) -> Iterator[TraceEvent]:
    for cell, start_s, end_s, use in result.record.cells.iter_rows():
        start_us = _us(start_s)
        yield {
            "ph": "X",
            "name": USE_TITLES[use],
            "cat": "use",
            "pid": pid,
            "tid": cell + 1,
            "ts": start_us,
            "dur": max(0.0, round(_us(end_s) - start_us, 3)),
            "cname": _COLOURS[use],
        }
    for cell, step, micro_step, start_s, end_s, tokens, returned in result.record.micro_steps.iter_rows():
        start_us = _us(start_s)
        yield {
            "ph": "X",
            "name": f"micro-step {step}.{micro_step}",
            "cat": "micro_step",
            "pid": pid,
            "tid": cell + 1,
            "ts": start_us,
            "dur": max(0.0, round(_us(end_s) - start_us, 3)),
            "args": {"tokens": tokens} if returned else {"tokens": tokens, "returned": False},
        }


def _instants(pid: int, result: RunResult) -> Iterator[TraceEvent]:
    base = {"ph": "i", "s": "p", "pid": pid, "tid": _CONTROL_TRACK}
    for step, updated_s in result.record.steps.select("step", "updated_s").iter_rows():
        if updated_s is not None:
            yield {
                **base,
                "name": f"update {step + 1}",
                "cat": "update",
                "ts": _us(updated_s),
                "args": {"version": step + 1},
            }
    for time_s, version in result.record.publishes:
        yield {**base, "name": f"publish {version}", "cat": "publish", "ts": _us(time_s), "args": {"version": version}}


def _counters(pid: int, result: RunResult) -> Iterator[TraceEvent]:
    for name in _COUNTERS:
        changes = result.record.levels.filter(pl.col(name).ne_missing(pl.col(name).shift())).select("time_s", name)
        base = {"ph": "C", "name": name.replace("_", " "), "pid": pid, "tid": _CONTROL_TRACK}
        for time_s, level in changes.iter_rows():
            yield {**base, "ts": _us(time_s), "args": {"value": level}}


def trace_events(results: Sequence[RunResult]) -> Iterator[TraceEvent]:
    """Yield all events: metadata first, then by run slices, instants and counters."""
    for pid, result in enumerate(results, start=1):
        yield from _metadata(pid, result)
    for pid, result in enumerate(results, start=1):
        yield from _slices(pid, result)
        yield from _instants(pid, result)
        yield from _counters(pid, result)


def write_trace_events(path: Path, results: Sequence[RunResult]) -> None:
    """Write `timeline.json`; raise OSError where the system refuses."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[')
        for index, event in enumerate(trace_events(results)):
            file.write((",\n" if index else "\n") + encode(event))
        file.write("\n]}\n")
