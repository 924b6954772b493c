"""Small traces for tests, built from the fields that a test cares about."""

from __future__ import annotations

from typing import Any

import polars as pl

from gyre.workload.schema import CALLS
from gyre.workload.trace import Trace, with_sums


def call(index: int, **fields: Any) -> dict[str, Any]:
    """A call that appends to the one before it after a tool wait of 1 s; a root at index 0."""
    root = index == 0
    plain = {
        "execution_id": "e",
        "call_index": index,
        "thread": 0,
        "parent_thread": None,
        "role": "main",
        "parent_call": None if root else index - 1,
        "relation": "root" if root else "append",
        "prefix_tokens": 0 if root else 100 * index,
        "dropped_tokens": 0,
        "input_tokens": 100 * (index + 1),
        "output_tokens": 10,
        "after_call": None if root else index - 1,
        "wait_s": 0.0 if root else 1.0,
        "wait_kind": "start" if root else "tool",
    }
    return plain | fields


def sub_agent(index: int, thread: int, *, after: int, parent_thread: int = 0, **fields: Any) -> dict[str, Any]:
    """A call of a sub-agent with a context of its own."""
    root: dict[str, Any] = {"parent_call": None, "relation": "root", "prefix_tokens": 0, "wait_kind": "start"}
    return call(
        index, thread=thread, parent_thread=parent_thread, role="sub_agent", after_call=after, **(root | fields)
    )


def trace_of(calls: list[dict[str, Any]], **execution: Any) -> Trace:
    """A trace of the calls; `execution` sets columns of every execution."""
    frame = pl.DataFrame(calls, schema={name: dtype for name, dtype in CALLS.items() if name in calls[0]})
    plain: dict[str, Any] = {
        "group_id": "g",
        "source": "test",
        "outcome": "completed",
        "score_status": "unscored",
        "setup_s": 0.0,
        "scoring_s": 0.0,
        "human_in_loop": False,
        "censored": False,
        "synthetic": False,
        "token_quality": "recorded",
        "time_quality": "recorded",
        "prefix_quality": "recorded",
    }
    ids = frame["execution_id"].unique(maintain_order=True)
    executions = pl.DataFrame([plain | {"execution_id": name} | execution for name in ids])
    return Trace.from_frames(executions=with_sums(executions, frame), calls=frame, source="test")


def replaced(trace: Trace, **tables: pl.DataFrame) -> Trace:
    """The trace with some of its tables exchanged, without any check."""
    return Trace(**(trace.tables() | tables))
