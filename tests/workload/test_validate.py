"""Every invariant is checked, and repaired only by its rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import call, replaced, sub_agent, trace_of

from gyre.errors import InputError
from gyre.workload import Kind, Trace, repair, validate
from gyre.workload.compile import compile_program
from gyre.workload.schema import CALLS
from gyre.workload.validate import read_repaired


def sound() -> Trace:
    """A main thread that spawns a sub-agent, joins it, and goes on; a second execution."""
    return trace_of(
        [
            call(0),
            sub_agent(1, 1, after=0),
            sub_agent(2, 1, after=1, parent_call=1, relation="append", prefix_tokens=210, wait_kind="tool"),
            call(3, parent_call=0, after_call=0, prefix_tokens=110, wait_kind="subagent_join"),
            call(4),
            call(0, execution_id="f"),
            call(1, execution_id="f", relation="branch", prefix_tokens=60, dropped_tokens=50),
        ]
    )


def with_cells(trace: Trace, row: int, **cells: Any) -> Trace:
    """The trace with cells of one row of calls changed."""
    here = pl.int_range(pl.len()) == row
    calls = trace.calls.with_columns(
        pl.when(here).then(pl.lit(value, CALLS[name])).otherwise(pl.col(name)).alias(name)
        for name, value in cells.items()
    )
    return replaced(trace, calls=calls)


def test_a_sound_trace_has_no_violation() -> None:
    report = validate(sound())
    assert report.ok
    assert report.count("model_time_unknown") == 0  # no call has one: nothing to note
    assert validate(with_cells(sound(), 1, model_s=2.0)).count("model_time_unknown") == 6  # a note, no violation
    same, repairs = repair(sound())
    assert not repairs.of(Kind.REPAIRED)
    assert all(frame.equals(same.tables()[name]) for name, frame in sound().tables().items())


@pytest.mark.parametrize(
    ("row", "cells", "rule", "repaired"),
    [
        (4, {"wait_s": -2.0}, "wait_nonnegative", {"wait_s": 0.0}),
        (4, {"prefix_tokens": 600}, "prefix_within", {"prefix_tokens": 410}),
        (4, {"prefix_tokens": -1}, "prefix_within", {"prefix_tokens": 0}),
        (4, {"input_tokens": 399, "prefix_tokens": 300}, "append_grows", {"relation": "branch", "prefix_tokens": 300}),
        (4, {"parent_call": 4}, "parent_earlier", {"parent_call": None, "relation": "root", "prefix_tokens": 0}),
        (4, {"parent_call": -3}, "parent_earlier", {"parent_call": None, "relation": "root"}),
        (4, {"parent_call": None}, "root_without_parent", {"relation": "root", "prefix_tokens": 0}),
        (1, {"prefix_tokens": 5}, "root_without_parent", {"prefix_tokens": 0}),
        (6, {"dropped_tokens": 51}, "dropped_within", {"dropped_tokens": 50}),
        (0, {"input_tokens": 0}, "input_positive", {"input_tokens": 1}),
        (4, {"output_tokens": -1}, "output_nonnegative", {"output_tokens": 0}),
        (4, {"cached_tokens": 501}, "cached_within", {"cached_tokens": None}),
        (4, {"model_s": float("nan")}, "model_s_valid", {"model_s": None}),
        (4, {"start_s": -1.0}, "start_s_valid", {"start_s": None}),
        (0, {"parent_thread": 1}, "thread_parent", {"parent_thread": None}),
        (2, {"parent_thread": None}, "thread_parent", {"parent_thread": 0}),
        (1, {"parent_thread": 7}, "thread_parent", {"parent_thread": 0}),
    ],
)
def test_a_broken_call_is_reported_and_repaired(
    row: int, cells: dict[str, Any], rule: str, repaired: dict[str, Any]
) -> None:
    broken = with_cells(sound(), row, **cells)
    finding = next(found for found in validate(broken).violations if found.rule == rule)
    assert finding.kind is Kind.REPAIRABLE
    assert row in finding.rows
    mended, report = repair(broken)
    assert report.count(rule) == finding.count
    assert mended.calls.row(row, named=True).items() >= repaired.items()
    assert validate(mended).ok


def test_a_join_before_its_thread_ends_becomes_a_tool_wait() -> None:
    calls = [
        call(0),
        sub_agent(1, 1, after=0),
        call(2, parent_call=0, after_call=0, prefix_tokens=110, wait_kind="subagent_join"),
        sub_agent(3, 1, after=1, parent_call=1, relation="append", prefix_tokens=210, wait_kind="tool"),
    ]
    mended, report = repair(trace_of(calls))
    assert report.of(Kind.REPAIRED)[0].rule == "join_after_threads"
    assert mended.calls["wait_kind"][2] == "tool"
    assert validate(mended).ok


@pytest.mark.parametrize(
    ("row", "cells", "rule"),
    [
        (4, {"after_call": 4}, "after_call_earlier"),
        (4, {"after_call": -2}, "after_call_earlier"),
        (4, {"wait_s": float("inf")}, "wait_finite"),
        (4, {"call_index": 9}, "call_index_dense"),
        (0, {"thread": 3, "parent_thread": 0}, "starts_on_main"),
        (6, {"execution_id": "unheard"}, "execution_known"),
    ],
)
def test_a_broken_structure_is_fatal_and_listed_on_loading(
    tmp_path: Path, row: int, cells: dict[str, Any], rule: str
) -> None:
    broken = with_cells(sound(), row, **cells)
    assert rule in {found.rule for found in validate(broken).of(Kind.FATAL)}
    broken.write(tmp_path / "t")
    with pytest.raises(InputError, match=rf"cannot be simulated: .*{rule} x1") as caught:
        read_repaired(tmp_path / "t")
    assert "\n" not in str(caught.value)


def duplicated_execution(trace: Trace) -> Trace:
    return replaced(trace, executions=pl.concat([trace.executions, trace.executions[:1]]))


def duplicated_group(trace: Trace) -> Trace:
    return replaced(trace, groups=pl.concat([trace.groups, trace.groups]))


def lost_group(trace: Trace) -> Trace:
    return replaced(trace, groups=trace.groups.clear())


@pytest.mark.parametrize(
    ("breaks", "rule"),
    [
        (duplicated_execution, "execution_id_unique"),
        (duplicated_group, "group_id_unique"),
        (lost_group, "group_known"),
    ],
)
def test_broken_ids_are_fatal(breaks: Callable[[Trace], Trace], rule: str) -> None:
    assert rule in {found.rule for found in validate(breaks(sound())).of(Kind.FATAL)}


def test_sums_and_sizes_are_counted_again() -> None:
    trace = sound()
    wrong = replaced(
        trace,
        executions=trace.executions.with_columns(n_calls=pl.lit(1, pl.Int64), setup_s=pl.lit(-1.0)),
        groups=trace.groups.with_columns(n_executions=pl.lit(9, pl.Int64)),
    )
    report = validate(wrong)
    assert {found.rule for found in report.violations} == {"sums_agree", "group_size_agrees", "setup_s_valid"}
    mended, _ = repair(wrong)
    assert mended.executions["n_calls"].to_list() == [5, 2]
    assert mended.groups["n_executions"].to_list() == [2]
    assert mended.executions["setup_s"].to_list() == [0.0, 0.0]


def test_a_tool_of_no_call_is_removed_and_counted() -> None:
    trace = sound()
    tools = pl.DataFrame(
        {"execution_id": ["e", "e"], "call_index": [0, 99], "duration_s": [1.0, 2.0]},
        schema_overrides={"call_index": pl.Int32},
    )
    broken = Trace.from_frames(executions=trace.executions, calls=trace.calls, tools=tools)
    mended, report = repair(broken)
    assert report.count("tool_has_call") == 1
    assert mended.tools["call_index"].to_list() == [0]


CORRUPT = st.fixed_dictionaries(
    {},
    optional={
        "wait_s": st.floats(-5, 5),
        "input_tokens": st.integers(-5, 600),
        "output_tokens": st.integers(-5, 50),
        "prefix_tokens": st.integers(-5, 700),
        "dropped_tokens": st.integers(-5, 700),
        "parent_call": st.none() | st.integers(-2, 6),
        "relation": st.sampled_from(["root", "append", "branch", "compaction", "retry"]),
        "wait_kind": st.sampled_from(["start", "tool", "human", "subagent_join", "queue"]),
        "parent_thread": st.none() | st.integers(0, 3),
        "cached_tokens": st.none() | st.integers(-5, 600),
        "model_s": st.none() | st.floats(),
    },
)


@settings(max_examples=40, deadline=None)
@given(damage=st.dictionaries(st.integers(0, 6), CORRUPT, max_size=4))
def test_whatever_is_damaged_is_repaired_for_good_and_compiles(damage: dict[int, dict[str, Any]]) -> None:
    broken = sound()
    for row, cells in damage.items():
        broken = with_cells(broken, row, **cells)
    mended, report = repair(broken)
    assert validate(mended).ok
    assert not report.of(Kind.FATAL)
    assert compile_program(mended).calls == 7
    again, second = repair(mended)
    assert not second.of(Kind.REPAIRED)
    assert again.calls.equals(mended.calls)
    if validate(broken).ok:
        assert mended.calls.equals(broken.calls)


def test_an_execution_without_calls_is_noted_and_compiles() -> None:
    trace = sound()
    lone = trace.executions[:1].with_columns(
        execution_id=pl.lit("z"), n_calls=0, sum_input_tokens=0, sum_output_tokens=0
    )
    wider = Trace.from_frames(executions=pl.concat([lone, trace.executions], how="vertical_relaxed"), calls=trace.calls)
    report = validate(wider)
    assert report.ok
    assert report.count("no_calls") == 1
    assert compile_program(wider).call_start.tolist() == [0, 0, 5, 7]
