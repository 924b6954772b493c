"""A run's summary and comparisons against figures worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from report_journal import hand_journal
from rich.console import Console

from gyre.events import LoadReport
from gyre.journal import Header
from gyre.report import (
    Bound,
    Interval,
    RunResult,
    compare_runs,
    comparison_table,
    ratio_interval,
    record_run,
    summarize,
)
from gyre.report.comparison import Comparison, token_spread
from gyre.report.summary import Summary, policy_of, settings_digest
from gyre.report.use import GpuUse


def result(policy: str, seed: int, stretch: float) -> RunResult:
    """The run written by hand, every time of it multiplied by `stretch`."""
    journal = hand_journal()[:1]
    for entry in hand_journal()[1:]:
        assert not isinstance(entry, Header)
        late = replace(entry, time_s=entry.time_s * stretch)
        journal.append(replace(late, busy_s=late.busy_s * stretch) if isinstance(late, LoadReport) else late)
    record = record_run(journal)
    binding = "GPU time" if seed else "critical path"
    bound = Bound(lower_bound_s=25.0 + seed, fraction=25.0 / record.wall_s, binding=binding)
    return RunResult(record, summarize(record, policy=policy, seed=seed, bound=bound))


def test_summary_of_the_run_written_by_hand() -> None:
    summary = summarize(record_run(hand_journal()))
    assert (summary.policy, summary.seed, summary.complete) == ("elastic", 7, True)
    assert summary.wall_hours == pytest.approx(50 / 3600)
    assert (summary.gpus, summary.cells, summary.steps, summary.trained_tokens) == (5, 2, 2, 125)
    assert (summary.step_s.mean, summary.step_s.p50, summary.step_s.max) == (22.0, 22.0, 32.0)
    assert summary.step_s.p99 == pytest.approx(12 + 0.99 * 20)
    groups, executions = summary.groups, summary.executions
    assert (groups.dispatched, groups.consumed, groups.lost, groups.unfinished) == (3, 2, 1, 0)
    assert (executions.dispatched, executions.consumed, executions.lost, executions.unfinished) == (6, 3, 3, 0)
    assert executions.lost_by_reason["overall_timeout"] == 1
    assert summary.gpu_share[GpuUse.TRAINING] == pytest.approx((2 * 10 + 3 * 4) / 250)
    assert sum(summary.gpu_share.values()) == pytest.approx(1.0, rel=1e-12)
    idle = {GpuUse.SERVING_IDLE: 18, GpuUse.WAITING_FOR_SAMPLES: 32, GpuUse.WAITING_FOR_OTHERS: 20, GpuUse.FAILED: 6}
    assert summary.idle_by_reason == pytest.approx({use: gpu_s / 250 for use, gpu_s in idle.items()})
    assert summary.idle_share == pytest.approx(76 / 250)
    assert (summary.staleness.dispatch.mean, summary.staleness.dispatch.p99) == (0.5, 1.0)
    assert summary.staleness.token_mean.mean == pytest.approx(0.375)
    assert summary.switches == 3
    assert summary.switch_s.mean == pytest.approx(10 / 3)


def test_summary_survives_json() -> None:
    summary = summarize(record_run(hand_journal()), extra={"note": 1})
    assert Summary.model_validate_json(summary.to_json()) == summary


def test_an_empty_run_has_a_summary() -> None:
    summary = summarize(record_run(hand_journal()[:1]))
    assert (summary.complete, summary.steps, summary.idle_share) == (False, 0, 0.0)
    assert summary.staleness.dispatch.mean is None


def test_policy_name_and_digest() -> None:
    assert [policy_of(s) for s in ({"policy": "a"}, {"policy": {"name": "b"}}, {})] == ["a", "b", "run"]
    assert settings_digest({"a": 1, "b": 2}) == settings_digest({"b": 2, "a": 1}) != settings_digest({"a": 1})


def test_token_spread_counts_tokens() -> None:
    spread = token_spread(pl.DataFrame({"staleness": [0, 1, 1, 5], "tokens": [50, 30, 18, 2]}))
    assert (spread.mean, spread.p50, spread.p99, spread.max) == (0.58, 0.0, 5.0, 5.0)


def test_speed_up_pairs_runs_by_seed() -> None:
    runs = [result("slow", 0, 2.0), result("slow", 1, 4.0), result("fast", 1, 2.0), result("fast", 0, 1.0)]
    comparison = compare_runs(runs, published={"fast": 1.78})
    slow, fast = comparison.policies
    assert (comparison.baseline, slow.speed_up, slow.speed_up_interval) == ("slow", 1.0, None)
    assert fast.speed_up == pytest.approx(2.0)
    assert fast.speed_up_interval is not None
    assert fast.speed_up_interval.source == "seeds"
    # Both seeds have the same ratio, so every resample has it.
    assert (fast.speed_up_interval.low, fast.speed_up_interval.high) == pytest.approx((2.0, 2.0))
    assert fast.published_speed_up == 1.78
    assert fast.bound is not None
    assert fast.bound.fraction == pytest.approx((25 / 100 + 25 / 50) / 2), "the mean over seeds"
    assert fast.bound.lower_bound_s == pytest.approx(25.5)
    assert Comparison.model_validate_json(comparison.to_json()) == comparison


def test_the_binding_term_is_that_of_most_seeds() -> None:
    comparison = compare_runs([result("a", seed, 1.0) for seed in (0, 1, 2)])
    assert comparison.policies[0].bound is not None
    assert comparison.policies[0].bound.binding == "GPU time"


def timed(policy: str, mu: int | None, times_s: list[float]) -> RunResult:
    """A complete run of which only the steps' times matter."""
    steps = pl.DataFrame({"duration_s": times_s})
    held = {} if mu is None else {"policy_settings": {"mu": mu}}
    blank = result(policy, 0, 1.0)
    record = replace(blank.record, settings=held, steps=steps, end_s=sum(times_s), start_s=0.0)
    return RunResult(record, blank.summary)


def test_one_seed_gives_an_interval_over_whole_bursts_and_says_so() -> None:
    """Every burst of `b` takes 100 s, all at its first step, and four steps of `a` 200 s: no burst differs."""
    comparison = compare_runs([timed("a", None, [50.0] * 18), timed("b", 4, [97.0, 1.0, 1.0, 1.0] * 4 + [25.0, 25.0])])
    interval = comparison.policies[1].speed_up_interval
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((2.0, 2.0))
    assert interval.source == "bursts"
    assert "One seed only" in comparison.all_notes[-1]
    assert "whole bursts" in comparison.all_notes[-1]


def test_fewer_than_four_bursts_of_both_give_no_interval() -> None:
    for mu_a, mu_b, steps, there in ((2, 3, 24, True), (2, 3, 23, False), (None, 1, 4, True), (None, 1, 3, False)):
        times_s = [1.0 + step % 5 for step in range(steps)]
        comparison = compare_runs([timed("a", mu_a, times_s), timed("b", mu_b, times_s[::-1])])
        assert (comparison.policies[1].speed_up_interval is not None) is there


def test_a_given_interval_wins() -> None:
    given = Interval(low=1.0, high=9.0)
    comparison = compare_runs([result("a", 0, 3.0), result("b", 0, 1.0)], intervals={"b": given})
    assert comparison.policies[1].speed_up_interval == given


def test_a_run_that_was_stopped_has_no_speed_up() -> None:
    part = record_run(hand_journal()[:30])
    stopped = RunResult(part, summarize(part, policy="b", seed=0))
    comparison = compare_runs([result("a", 0, 1.0), stopped])
    assert not comparison.complete
    assert comparison.policies[1].speed_up is None


def test_comparing_needs_runs_and_the_baseline() -> None:
    with pytest.raises(ValueError, match="no runs"):
        compare_runs([])
    with pytest.raises(ValueError, match="baseline"):
        compare_runs([result("a", 0, 1.0)], baseline="b")


def test_the_table_fits_a_terminal() -> None:
    comparison = compare_runs([result(policy, 0, 1.0 + index) for index, policy in enumerate(("a", "b", "c"))])
    console = Console(width=80, record=True, file=None, quiet=True)
    text = "\n".join(
        "".join(segment.text for segment in line)
        for line in console.render_lines(comparison_table(comparison), pad=False)
    )
    assert "…" not in text
    for word in (
        "speed-up over a",
        "of its own clairvoyant bound",
        "waiting for samples",
        "staleness",
        "overall timeout",
        "GPU time",
    ):
        assert word in text


def test_interval_covers_a_ratio_of_means() -> None:
    """Over many samples of known means, about 95 % of the intervals hold the true ratio."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(60):
        own = rng.gamma(20.0, 1 / 20, 40)
        base = 1.5 * own * rng.gamma(20.0, 1 / 20, 40)
        interval = ratio_interval(base.tolist(), own.tolist(), source="bursts")
        assert interval is not None
        hits += interval.low <= 1.5 <= interval.high
    # Binomial(60, 0.95): fewer than 50 has probability below 1e-3, with room for the bootstrap's own error.
    assert hits >= 50


def test_interval_needs_two_pairs() -> None:
    assert ratio_interval([1.0], [1.0], source="seeds") is None
    degenerate = ratio_interval([2.0, 4.0], [1.0, 2.0], source="seeds")
    assert degenerate is not None
    assert math.isclose(degenerate.low, 2.0)
