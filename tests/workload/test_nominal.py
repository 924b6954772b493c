"""Nominal durations: small cases by hand, and the published sizes that the bundled profiles stand for."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from small_profile import small_profile

from gyre.arrays import FloatArray
from gyre.workload.description import describe
from gyre.workload.profiles import load_profile
from gyre.workload.profiles.generate import generate
from gyre.workload.profiles.nominal import NominalDurations, nominal_durations
from gyre.workload.trace import Trace

GROUPS = 512  # two blocks of the generator's design


def fixed(**changes: object) -> dict[str, object]:
    """Every length fixed: 10 calls, 100 new tokens and 50 output tokens a call, waits of 2 s."""
    return {
        "calls": {"median": 10.0},
        "input_tokens": {"median": 1000.0},
        "growth_tokens": {"median": 100.0},
        "output_tokens": {"median": 50.0},
        "tool_wait_s": {"median": 2.0},
        "setup_s": {"median": 30.0},
        "scoring_s": {"median": 7.0},
        "compaction": None,
        "sub_agents": {},
        "failures": {},
        "timeouts": {},
        **changes,
    }


def test_a_plain_execution_by_hand() -> None:
    """30 s set-up, 10 x 50 tokens at 50/s, 1,000 + 9 x 100 new ones at 5,000/s, 9 waits of 2 s, 7 s scoring."""
    profile = small_profile(**fixed())
    found = nominal_durations(generate(profile, groups=1, seed=0), profile)
    assert found.unlimited_s == pytest.approx(30.0 + 10.0 + 1900 / 5000 + 18.0)
    assert found.execution_s == pytest.approx(found.unlimited_s + 7.0)


def test_sub_agents_run_in_parallel_and_the_longest_counts() -> None:
    """Every call but the last spawns: its sub-agents of 4 calls take the place of the wait for the tool."""
    sub_agents = {
        "group_share": 1.0,
        "per_call": 1.0,
        "width": 3.0,
        "calls": {"median": 4.0},
        "input_tokens": {"median": 500.0},
    }
    profile = small_profile(**fixed(sub_agents=sub_agents))
    found = nominal_durations(generate(profile, groups=1, seed=0), profile)
    one = 4 * 1.0 + (500 + 3 * 100) / 5000 + 3 * 2.0
    assert found.unlimited_s == pytest.approx(30.0 + 10.0 + 1900 / 5000 + 9 * one)


def test_time_outs_cut_and_only_the_overall_one_goes_unscored() -> None:
    base = fixed()
    whole = 30.0 + 10.0 + 0.38 + 18.0
    for limits, length, harness, overall in (
        ({"harness_s": 40.0}, 47.0, True, False),
        ({"overall_s": 40.0}, 40.0, False, True),
        ({"harness_s": 50.0, "overall_s": 40.0}, 40.0, False, True),
        ({"harness_s": 1000.0, "overall_s": 1000.0}, whole + 7.0, False, False),
    ):
        profile = small_profile(**(base | {"timeouts": limits}))
        found = nominal_durations(generate(profile, groups=1, seed=0), profile)
        assert found.execution_s == pytest.approx(length)
        assert found.harness_timeout.all() == found.harness_timeout.any() == harness
        assert found.overall_timeout.all() == found.overall_timeout.any() == overall


def test_a_failed_set_up_ends_with_the_set_up() -> None:
    profile = small_profile(**fixed(failures={"setup": 1.0}))
    found = nominal_durations(generate(profile, groups=1, seed=0), profile)
    assert found.execution_s == pytest.approx(30.0)


def drawn(name: str) -> tuple[Trace, NominalDurations]:
    profile = load_profile(name)
    trace = generate(profile, groups=GROUPS, seed=0)
    return trace, nominal_durations(trace, profile)


def shorter_by_time_outs(found: NominalDurations) -> FloatArray:
    limit = found.execution_s.max()
    return np.asarray(np.minimum(1.0, limit / np.maximum(found.unlimited_s, 1.0)), np.float64)


def unique_tokens(trace: Trace) -> FloatArray:
    new = (pl.col("input_tokens") - pl.col("prefix_tokens") + pl.col("output_tokens")).sum()
    counted = trace.calls.group_by("execution_id").agg(tokens=new)
    joined = trace.executions.join(counted, on="execution_id", how="left", maintain_order="left")
    return joined["tokens"].fill_null(0).cast(pl.Float64).to_numpy()


def test_nl2repo_122b_has_the_published_means() -> None:
    """QwenGyre, 122B, NL2RepoBench: mean execution 1.93 h, mean group 2.96 h."""
    _, found = drawn("nl2repo-122b")
    assert found.execution_s.mean() / 3600 == pytest.approx(1.93, rel=0.03)
    assert found.group_s.mean() / 3600 == pytest.approx(2.96, rel=0.03)


def test_nl2repo_2_4t_has_the_published_shares_and_tokens() -> None:
    """QwenGyre, 2.4T: 61.1 % of groups at 4 h or more, 38.2 % end in the overall time-out, ~700 K tokens a rollout."""
    trace, found = drawn("nl2repo-2.4t")
    assert np.mean(found.group_s >= 4 * 3600) == pytest.approx(0.611, abs=0.03)
    timed_out = np.bincount(found.group, found.overall_timeout) > 0
    assert timed_out.mean() == pytest.approx(0.382, abs=0.03)
    assert np.mean(unique_tokens(trace) * shorter_by_time_outs(found)) == pytest.approx(700e3, rel=0.07)


def test_terminal_bench_meets_its_time_limit_as_often_as_published() -> None:
    """28.8 % of trials hit the agent's time limit; 81 % of the variance of log duration lies between groups."""
    profile = load_profile("terminal-bench")
    trace, found = drawn("terminal-bench")
    assert found.harness_timeout.mean() == pytest.approx(0.288, abs=0.015)
    ran = (trace.executions["outcome"] != "env_setup_failed").to_numpy()
    described = describe(trace, duration_s=np.where(ran, found.unlimited_s, 0.0))
    assert described.groups.between_share_duration == pytest.approx(0.81, abs=0.03)
    assert profile.timeouts.harness_s


def test_reasoning_has_the_published_lengths() -> None:
    """Seer, Moonlight: mean output 22,386 tokens, longest 65,536."""
    trace, _ = drawn("reasoning")
    output = trace.calls["output_tokens"].to_numpy()
    assert output.mean() == pytest.approx(22_386, rel=0.02)
    assert output.max() == 65_536


@pytest.mark.parametrize("name", ["nl2repo-122b", "nl2repo-2.4t", "deepswe", "terminal-bench"])
def test_tool_waits_have_the_published_tail(name: str) -> None:
    """TraceLab: over one minute are 4 % of tool calls and 85 % of tool time."""
    trace = generate(load_profile(name), groups=256, seed=0)
    wait = trace.calls.filter((pl.col("wait_kind") == "tool") & (pl.col("wait_s") > 0))["wait_s"].to_numpy()
    assert np.mean(wait > 60.0) == pytest.approx(0.04, abs=0.004)
    assert wait[wait > 60.0].sum() / wait.sum() == pytest.approx(0.85, abs=0.02)
