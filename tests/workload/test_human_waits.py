"""Waits of people are replaced by waits for tools."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import call, sub_agent, trace_of

from gyre.workload import Trace, validate
from gyre.workload.human_waits import DEFAULT_QUANTILES, LEAST_SAMPLE, replace_human_waits, uniform_draws


def session(tool_waits: list[float], **execution: Any) -> Trace:
    """A person's pause of an hour after some tool waits."""
    calls = [call(0), *(call(1 + i, wait_s=wait) for i, wait in enumerate(tool_waits))]
    calls.append(call(len(calls), wait_s=3600.0, wait_kind="human", start_s=7000.0))
    return trace_of(calls, **({"human_in_loop": True, "wall_s": 9000.0} | execution))


def test_a_pause_becomes_one_of_the_traces_own_tool_waits() -> None:
    own = [round(0.1 * i, 1) for i in range(LEAST_SAMPLE)]
    trace, report = replace_human_waits(session(own), seed=3)
    last = trace.calls.row(-1, named=True)
    assert last["wait_kind"] == "tool"
    assert last["wait_s"] in own
    assert trace.calls["wait_s"][1:-1].to_list() == own
    assert report.count("human_wait_replaced") == 1
    assert report.count("hidden_pause_replaced") == 0


def test_what_held_the_pause_is_forgotten() -> None:
    trace, _ = replace_human_waits(session([1.0]), seed=3)
    row = trace.executions.row(0, named=True)
    assert (row["human_in_loop"], row["time_quality"], row["wall_s"]) == (False, "synthetic", None)
    assert trace.calls["start_s"].null_count() == len(trace.calls)
    assert validate(trace).ok


def test_a_long_tool_wait_hides_a_person_only_where_one_was() -> None:
    for person, waits in ((True, 1), (False, 0)):
        trace, report = replace_human_waits(session([61.0, 60.0], human_in_loop=person), seed=3)
        assert report.count("hidden_pause_replaced") == waits
        assert (trace.calls["wait_s"][1] == 61.0) is not person
        assert trace.calls["wait_s"][2] == 60.0


def test_a_join_that_hides_a_pause_stays_a_join() -> None:
    join: dict[str, Any] = {"parent_call": 0, "after_call": 0, "prefix_tokens": 110, "wait_kind": "subagent_join"}
    calls = [call(0), sub_agent(1, 1, after=0), call(2, wait_s=500.0, **join)]
    trace, _ = replace_human_waits(trace_of(calls, human_in_loop=True), seed=3)
    assert trace.calls["wait_kind"][2] == "subagent_join"
    assert trace.calls["wait_s"][2] < 500.0


def test_an_autonomous_trace_is_left_alone() -> None:
    trace = trace_of([call(0), call(1, wait_s=900.0)], wall_s=1000.0)
    same, report = replace_human_waits(trace, seed=3)
    assert not report.findings
    assert all(frame.equals(same.tables()[name]) for name, frame in trace.tables().items())


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(["a", "b", "c"]), seed=st.integers(0, 2**64 - 1))
def test_a_draw_depends_on_seed_execution_and_call_alone(order: list[str], seed: int) -> None:
    def drawn(names: list[str]) -> dict[tuple[str, int], float]:
        rows = [call(i, execution_id=n, **pause) for n in names for i, pause in enumerate(pauses)]
        trace, _ = replace_human_waits(trace_of(rows, human_in_loop=True), seed=seed)
        return {(row[0], row[1]): row[2] for row in trace.calls.select("execution_id", "call_index", "wait_s").rows()}

    pauses: list[dict[str, Any]] = [{}, {"wait_s": 99.0, "wait_kind": "human"}, {"wait_s": 98.0, "wait_kind": "human"}]
    assert drawn(order) == drawn(["a", "b", "c"])
    assert drawn(["b"]).items() <= drawn(order).items()


def test_draws_are_uniform_and_differ_by_seed() -> None:
    calls = pl.DataFrame(
        {"execution_id": [f"e{i % 50}" for i in range(20_000)], "call_index": [i // 50 for i in range(20_000)]}
    )
    first, second = uniform_draws(calls, 1), uniform_draws(calls, 2)
    for drawn in (first, second):
        ranks = np.sort(drawn)
        distance = np.abs(ranks - (np.arange(len(ranks)) + 0.5) / len(ranks)).max()
        assert distance < 1.95 / np.sqrt(len(ranks))  # Kolmogorov-Smirnov at 0.1 %
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(len(first))
    assert len(np.unique(first)) == len(first)


def test_the_default_distribution_has_the_measured_mean() -> None:
    probability, value = np.array(DEFAULT_QUANTILES).T
    assert (np.diff(probability) > 0).all()
    assert (np.diff(value) >= 0).all()
    mean = float(np.trapezoid(value, probability))
    assert mean == pytest.approx(0.311, rel=0.06)  # straight lines between quantiles overrate the far tail a little
