"""Importers on the recorded traces beside the checkout, against the figures published with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gyre.workload import Kind, Report, Trace, validate
from gyre.workload.compile import compile_program
from gyre.workload.human_waits import replace_human_waits
from gyre.workload.importers import import_trace

Imported = tuple[Trace, Report]


@pytest.fixture(scope="module")
def autonomous(shared: Path) -> Imported:
    return import_trace(shared / "traces/recorded/agentic_coding_lab.executions.parquet")


@pytest.fixture(scope="module")
def people(shared: Path) -> Imported:
    return import_trace(shared / "traces/recorded/kv_cache_tester.executions.parquet")


def quantiles(values: pl.Series) -> list[float]:
    return [float(np.quantile(values.to_numpy(), q)) for q in (0.5, 0.9, 0.99)]


def per_execution(trace: Trace, tokens: pl.Expr) -> pl.Series:
    return trace.calls.group_by("execution_id", maintain_order=True).agg(tokens.sum().alias("tokens"))["tokens"]


def test_counts(autonomous: Imported, people: Imported) -> None:
    assert (len(autonomous[0].executions), len(autonomous[0].calls), len(autonomous[0].tools)) == (
        855,
        143_701,
        144_189,
    )
    assert (len(people[0].executions), len(people[0].calls)) == (692, 46_218)
    assert autonomous[0].groups.filter(pl.col("n_executions") >= 4).height == 126
    with_sub_agents = autonomous[0].calls.filter(pl.col("thread") > 0)["execution_id"].n_unique()
    assert with_sub_agents == 443


def test_compactions(autonomous: Imported) -> None:
    compactions = autonomous[0].calls.filter(pl.col("relation") == "compaction")
    assert len(compactions) == autonomous[1].count("compaction") == 195
    assert compactions["execution_id"].n_unique() == 153
    assert compactions["input_tokens"].median() == pytest.approx(56_700, rel=0.01)


def test_calls_per_run(autonomous: Imported, people: Imported) -> None:
    assert quantiles(autonomous[0].executions["n_calls"]) == pytest.approx([113, 420, 673], abs=1)
    assert quantiles(people[0].executions["n_calls"]) == pytest.approx([44, 150, 342], abs=1)


def test_sum_of_inputs(autonomous: Imported, people: Imported) -> None:
    assert quantiles(autonomous[0].executions["sum_input_tokens"]) == pytest.approx([7.1e6, 29e6, 81e6], rel=0.02)
    assert quantiles(people[0].executions["sum_input_tokens"]) == pytest.approx([5.0e6, 19e6, 42e6], rel=0.03)


def test_unique_tokens(autonomous: Imported, people: Imported) -> None:
    """Published: new input tokens of all calls and, in the first set, the outputs of leaves.

    Outputs of other calls are missing there: they are part of the next call's prefix, not of its new input. In the
    second set prefixes end before the parent's output, so that new inputs hold them.
    """
    trace = autonomous[0]
    continued = trace.calls.filter(pl.col("relation") == "append").select("execution_id", call_index="parent_call")
    leaves = trace.calls.join(continued, on=["execution_id", "call_index"], how="anti")
    new_input = pl.col("input_tokens") - pl.col("prefix_tokens")
    outputs = leaves.group_by("execution_id").agg(pl.col("output_tokens").sum().alias("outputs"))
    leaf_outputs = trace.executions.join(outputs, on="execution_id", maintain_order="left")["outputs"]
    assert quantiles(per_execution(trace, new_input) + leaf_outputs) == pytest.approx([192e3, 1.5e6, 3.7e6], rel=0.03)
    assert quantiles(per_execution(people[0], new_input)) == pytest.approx([203e3, 670e3, 1.4e6], rel=0.03)


@pytest.mark.parametrize(("source", "share"), [("autonomous", 0.974), ("people", 0.962)])
def test_prefix_reuse(source: str, share: float, request: pytest.FixtureRequest) -> None:
    calls = request.getfixturevalue(source)[0].calls
    assert calls["prefix_tokens"].sum() / calls["input_tokens"].sum() == pytest.approx(share, abs=0.016)


def test_output_per_call_and_wall_time(autonomous: Imported, people: Imported) -> None:
    assert quantiles(autonomous[0].calls["output_tokens"]) == pytest.approx([293, 931, 2332], abs=1)
    assert quantiles(people[0].calls["output_tokens"]) == pytest.approx([218, 893, 3721], abs=2)
    assert quantiles(autonomous[0].executions["wall_s"].drop_nulls()) == pytest.approx([770, 3185, 6202], rel=0.01)


def test_the_known_faults_are_reported(autonomous: Imported, people: Imported) -> None:
    assert autonomous[1].count("wait_nonnegative") == 12
    assert autonomous[1].of(Kind.REPAIRED)[0].count == 12
    assert people[1].count("model_time_unknown") == 4_312
    for trace, _ in (autonomous, people):
        assert trace.calls["wait_s"].min() == 0.0
        first = trace.calls.group_by("execution_id").agg(pl.col("start_s").min())
        assert first["start_s"].to_list() == [0.0] * len(first)
    assert autonomous[0].executions["prefix_quality"].unique().to_list() == ["inferred"]
    assert people[0].executions["time_quality"].unique().to_list() == ["rounded"]


@pytest.mark.parametrize("source", ["autonomous", "people"])
def test_recorded_sets_are_valid_and_compile(source: str, request: pytest.FixtureRequest) -> None:
    trace, _ = request.getfixturevalue(source)
    assert validate(trace).ok
    program = compile_program(trace)
    assert program.calls == len(trace.calls)
    assert int((program.dependencies == 0).sum()) == len(trace.executions)  # all but the first call wait for another
    per_execution = np.diff(program.path_start)
    assert per_execution.min() >= 1
    assert per_execution.max() <= 5


def test_leaves_are_the_recorded_ones(autonomous: Imported, shared: Path) -> None:
    recorded = pl.read_parquet(shared / "traces/recorded/agentic_coding_lab.calls.parquet", columns=["is_leaf"])
    program = compile_program(autonomous[0], max_paths=200)
    assert len(program.path_tokens) == recorded["is_leaf"].sum()


def test_sub_agents_are_joined(autonomous: Imported) -> None:
    """Waits for tools are short once the time of sub-agents is not counted as a tool's."""
    tools = autonomous[0].calls.filter(pl.col("wait_kind") == "tool")["wait_s"]
    assert float(tools.quantile(0.99) or 0) == pytest.approx(2.06, abs=0.01)
    joins = autonomous[0].calls.filter(pl.col("wait_kind") == "subagent_join")
    assert len(joins) > 10_000


def test_people_leave_and_the_trace_stays_valid(people: Imported) -> None:
    replaced, report = replace_human_waits(people[0], seed=1)
    assert validate(replaced).ok
    assert report.count("human_wait_replaced") == people[0].calls.filter(pl.col("wait_kind") == "human").height == 6_386
    assert replaced.calls.filter(pl.col("wait_s") > 60.0).is_empty()
    assert not replaced.executions["human_in_loop"].any()


RAW = {
    "kv_cache_tester": (21, 1_095),
    "mooncake": (2_188, 3_000),
    "azure": (1_999, 1_999),
    "claude_code": (4, 638 + 3),  # three compactions' summary calls are set from their boundary lines
}


@pytest.mark.parametrize("name", RAW)
def test_raw_samples_import_validate_and_compile(name: str, shared: Path) -> None:
    trace, report = import_trace(shared / "traces/raw" / name)
    assert (len(trace.executions), len(trace.calls)) == RAW[name]
    assert not report.of(Kind.SKIPPED)
    assert validate(trace).ok
    assert compile_program(trace).calls == len(trace.calls)


def test_raw_kv_cache_tester_agrees_with_the_recorded_set(people: Imported, shared: Path) -> None:
    """The main threads, call by call: another program read the same block hashes."""
    raw, _ = import_trace(shared / "traces/raw/kv_cache_tester")
    columns = ["input_tokens", "output_tokens", "prefix_tokens", "dropped_tokens", "relation", "finish_reason"]
    for execution in raw.executions["execution_id"]:
        main = raw.calls.filter((pl.col("execution_id") == execution) & (pl.col("thread") == 0))
        recorded = people[0].calls.filter((pl.col("execution_id") == f"weka:{execution}") & (pl.col("thread") == 0))
        assert main.select(columns).equals(recorded.select(columns)), execution
        for column in ("start_s", "model_s"):
            assert main[column].is_null().equals(recorded[column].is_null())
            assert (main[column] - recorded[column]).abs().fill_null(0.0).to_numpy().max() < 1e-5


@pytest.mark.parametrize("run", [1, 2, 3, 4])
def test_raw_claude_code_agrees_with_the_recorded_set(run: int, autonomous: Imported, shared: Path) -> None:
    raw, _ = import_trace(shared / "traces/raw/claude_code" / f"run_{run}")
    logged = raw.calls.filter(pl.col("role") != "main_summary")
    sums = (logged["input_tokens"].sum(), logged["output_tokens"].sum(), len(logged))
    same = autonomous[0].executions.filter(
        (pl.col("sum_input_tokens") == sums[0])
        & (pl.col("sum_output_tokens") == sums[1])
        & (pl.col("n_calls") == sums[2])
    )
    assert len(same) == 1
    recorded = autonomous[0].calls.filter(pl.col("execution_id") == same["execution_id"][0])
    for column in ("input_tokens", "output_tokens", "prefix_tokens", "relation", "cached_tokens"):
        assert logged[column].to_list() == recorded[column].to_list(), column
    for column in ("start_s", "model_s"):  # which of several lines in a row triggered the call is a matter of taste
        assert np.abs(logged[column].to_numpy() - recorded[column].to_numpy()).max() < 0.2
    assert raw.executions["reward"].to_list() == same["reward"].to_list()
