"""Fits: known parameters come back, censored samples are not taken at face value, recorded data are reproduced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_profile import small_profile

from gyre.errors import InputError
from gyre.workload.description.variance import nested_components, variance_components
from gyre.workload.fitting import fit_profile, goodness_of_fit
from gyre.workload.fitting.laws import fit_correlated, fit_lognormal, fit_pareto, fit_two_part
from gyre.workload.fitting.outliers import fit_mixture
from gyre.workload.importers import import_trace
from gyre.workload.profiles import load_profile
from gyre.workload.profiles.generate import generate
from gyre.workload.trace import Trace


@pytest.fixture(scope="module")
def round_trip() -> tuple[object, object]:
    profile = load_profile("nl2repo-122b")
    return profile, fit_profile(generate(profile, groups=256, seed=0), "again")


# Relative tolerance: about four standard errors of each estimate at 256 groups of 8.
KNOWN = {
    "calls.median": 0.03,
    "calls.sigma_group": 0.05,
    "calls.sigma_member": 0.1,
    "calls.outlier_share": 0.25,
    "calls.sigma_outlier": 0.15,
    "input_tokens.median": 0.02,
    "input_tokens.sigma_group": 0.1,
    "growth_tokens.median": 0.05,
    "growth_tokens.sigma": 0.02,
    "growth_tokens.sigma_group": 0.1,
    "output_tokens.median": 0.02,
    "output_tokens.sigma": 0.02,
    "output_tokens.sigma_group": 0.1,
    "output_tokens.tail_alpha": 0.1,
    "tool_wait_s.median": 0.06,
    "tool_wait_s.sigma": 0.02,
    "tool_wait_s.sigma_group": 0.1,
    "tool_wait_s.tail_share": 0.1,
    "tool_wait_s.tail_alpha": 0.05,
    "setup_s.median": 0.2,
    "setup_s.sigma": 0.05,
    "scoring_s.median": 0.12,
    "reward.flat_groups": 0.2,
    "reward.mean": 0.12,
    "compaction.threshold_tokens": 0.005,
    "compaction.summary_tokens.median": 0.03,
    "compaction.context_after_tokens.median": 0.02,
    "sub_agents.group_share": 0.2,
    "sub_agents.per_call": 0.1,
    "sub_agents.width": 0.05,
    "sub_agents.calls.median": 0.05,
    "sub_agents.input_tokens.median": 0.03,
    "failures.retry": 0.1,
}


@pytest.mark.parametrize("key", KNOWN)
def test_known_parameters_come_back(round_trip: tuple[object, object], key: str) -> None:
    known, fitted = round_trip
    for part in key.split("."):
        known, fitted = getattr(known, part), getattr(fitted, part)
    assert fitted == pytest.approx(known, rel=KNOWN[key])


def test_a_sample_cut_at_a_time_out_gives_the_whole_law_back() -> None:
    rng = np.random.default_rng(0)
    value = np.exp(np.log(7200.0) + 0.8 * rng.standard_normal(4000))
    cut = value > 14_400.0
    seen = np.minimum(value, 14_400.0)
    law = fit_lognormal(seen, cut)
    assert law.median == pytest.approx(7200.0, rel=0.05)
    assert law.sigma == pytest.approx(0.8, rel=0.05)
    naive = fit_lognormal(seen)
    assert naive.sigma < 0.75 < law.sigma


def test_group_shares_match_a_balanced_analysis_of_variance() -> None:
    """By hand: groups (1, 3) and (5, 7) have MS within 2, MS between 16, so 7 between and 2 within."""
    value, group = np.array([1.0, 3.0, 5.0, 7.0]), np.array([0, 0, 1, 1])
    assert variance_components(value, group) == pytest.approx((7.0, 2.0))
    law = fit_correlated(np.exp(value), group)
    assert law.sigma_group**2 / (law.sigma_group**2 + law.sigma_member**2) == pytest.approx(7 / 9)


def test_groups_of_one_say_nothing_of_the_share() -> None:
    assert variance_components(np.array([1.0, 2.0, 3.0]), np.array([0, 1, 2])) is None
    law = fit_correlated(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 2]))
    assert law.sigma_group == 0.0
    assert law.sigma_member > 0.0


@given(between=st.floats(0.0, 1.0), own=st.floats(0.0, 1.0), within=st.floats(0.1, 1.5), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_nested_variances_come_back(between: float, own: float, within: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, members, calls = 200, 5, 20
    group_of_member = np.repeat(np.arange(groups), members)
    member = np.repeat(np.arange(groups * members), calls)
    effect = between * rng.standard_normal(groups)[group_of_member] + own * rng.standard_normal(groups * members)
    found = nested_components(effect[member] + within * rng.standard_normal(len(member)), member, group_of_member)
    spread = between**2 + own**2 + within**2 / calls
    assert found[0] == pytest.approx(between**2, abs=0.5 * spread)
    assert found[1] == pytest.approx(own**2, abs=0.3 * (own**2 + within**2 / calls))
    assert found[2] == pytest.approx(within**2, rel=0.1)


@given(alpha=st.floats(0.3, 3.0), ratio=st.floats(5.0, 1000.0))
@settings(max_examples=25, deadline=None)
def test_the_tail_exponent_comes_back(alpha: float, ratio: float) -> None:
    u = (np.arange(20_000) + 0.5) / 20_000
    value = 60.0 * (1.0 - u * (1.0 - ratio**-alpha)) ** (-1.0 / alpha)
    assert fit_pareto(value, 60.0, 60.0 * ratio) == pytest.approx(alpha, abs=0.02)


@given(share=st.floats(0.08, 0.2), core=st.floats(0.1, 0.5), ratio=st.floats(6.0, 12.0), size=st.integers(5, 9))
@settings(max_examples=20, deadline=None)
def test_rare_outliers_among_like_members_come_back(share: float, core: float, ratio: float, size: int) -> None:
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(800), size)
    sigma = np.where(rng.random(len(group)) < share, core * ratio, core)
    found = fit_mixture(3.0 * rng.standard_normal(800)[group] + sigma * rng.standard_normal(len(group)), group)
    assert found is not None
    assert found.share == pytest.approx(share, rel=0.25)
    assert found.sigma == pytest.approx(core, rel=0.15)
    assert found.sigma_outlier == pytest.approx(core * ratio, rel=0.2)


@given(seed=st.integers(0, 200), groups=st.integers(0, 300), size=st.integers(1, 8))
@settings(max_examples=25, deadline=None)
def test_normal_members_show_no_outliers(seed: int, groups: int, size: int) -> None:
    group = np.repeat(np.arange(groups), size)
    rng = np.random.default_rng(seed)
    value = 2.0 * rng.standard_normal(max(groups, 1))[group] + rng.standard_normal(len(group))
    assert fit_mixture(value, group) is None


def test_a_fit_never_reaches_beyond_the_longest_value() -> None:
    rng = np.random.default_rng(1)
    value = np.exp(2.0 * rng.standard_normal(2000))
    law = fit_two_part(value, np.zeros(2000, np.int64), np.zeros(1, np.int64), tail_from=10.0, floor=0.001)
    assert law.cap == value.max()
    assert law.tail_share == pytest.approx(np.mean(value >= 10.0))


def test_too_small_a_trace_is_refused() -> None:
    trace = generate(small_profile(failures={}), groups=1, seed=0)
    one = trace.select(trace.executions["execution_id"].head(1))
    with pytest.raises(InputError, match="only 1 executions"):
        fit_profile(one, "x")


def test_timed_out_executions_raise_the_fitted_length() -> None:
    """The longest half of every length is cut at the median and marked: the fit must see through it."""
    trace = generate(
        small_profile(sub_agents={}, failures={}, calls={"median": 40.0, "sigma_member": 0.5}), groups=200, seed=0
    )
    limit = 40
    calls = trace.calls.filter(pl.col("call_index") < limit)
    long = trace.executions.filter(pl.col("n_calls") > limit)["execution_id"].implode()
    executions = trace.executions.with_columns(
        outcome=pl.when(pl.col("execution_id").is_in(long)).then(pl.lit("overall_timeout")).otherwise("outcome")
    )
    cut = Trace.from_frames(executions=executions, calls=calls)
    fitted = fit_profile(cut, "x").calls
    assert fitted.sigma_member == pytest.approx(0.5, rel=0.15)
    assert fitted.cap is not None
    assert fitted.cap <= limit


def test_the_katas_profile_reproduces_the_recording_it_was_fitted_to(shared: Path) -> None:
    """KS distances and means of the recorded quantities; the bounds state how good the fit is."""
    recorded, _ = import_trace(shared / "traces/recorded/agentic_coding_lab.executions.parquet")
    goodness = goodness_of_fit(recorded, load_profile("coding-katas"))
    rows = {row.quantity: row for row in goodness.comparisons}
    for quantity, distance in {
        "duration_s": 0.12,
        "calls": 0.15,
        "unique_tokens": 0.12,
        "output_tokens_per_call": 0.06,
    }.items():
        assert rows[quantity].ks < distance, quantity
        assert rows[quantity].mean_ratio == pytest.approx(1.0, abs=0.12), quantity
    assert rows["sub_agents_per_execution"].mean_ratio == pytest.approx(1.0, abs=0.15)
    shares = (goodness.recorded.groups.between_share_duration, goodness.regenerated.groups.between_share_duration)
    assert shares[0] == pytest.approx(shares[1], abs=0.1)
