"""Generated traces: the schema's invariants, keyed draws, and the laws that were asked for."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_profile import small_profile

from gyre.errors import InputError
from gyre.workload import validate
from gyre.workload.description import samples
from gyre.workload.profiles import Profile, load_profile, profile_names
from gyre.workload.profiles.generate import generate


@given(
    seed=st.integers(0, 2**40),
    groups=st.integers(1, 6),
    size=st.integers(1, 5),
    threshold=st.integers(1300, 5000),
    retry=st.floats(0.0, 1.0),
    per_call=st.floats(0.0, 1.0),
    width=st.floats(1.0, 4.0),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_profile_the_trace_is_valid(
    *, seed: int, groups: int, size: int, threshold: int, retry: float, per_call: float, width: float
) -> None:
    base = small_profile()
    assert base.compaction
    profile = base.model_copy(
        update={
            "training": base.training.model_copy(update={"group_size": size}),
            "compaction": base.compaction.model_copy(update={"threshold_tokens": threshold}),
            "failures": base.failures.model_copy(update={"retry": retry}),
            "sub_agents": base.sub_agents.model_copy(update={"per_call": per_call, "width": width, "group_share": 1.0}),
        }
    )
    trace = generate(profile, groups=groups, seed=seed)
    assert validate(trace).ok
    assert len(trace.executions) == groups * size
    assert trace.executions["synthetic"].all()
    assert trace.executions["synthetic_scale"].unique().to_list() == [profile.scale]


@pytest.mark.parametrize("name", ["small", *profile_names()])
def test_a_group_is_the_same_however_many_are_drawn(name: str) -> None:
    profile = small_profile() if name == "small" else load_profile(name)
    few, many = (generate(profile, groups=groups, seed=5) for groups in (3, 10))
    assert few.executions.equals(many.executions.head(len(few.executions)))
    assert few.calls.equals(many.calls.head(len(few.calls)))


def test_a_member_is_the_same_however_large_its_group() -> None:
    small, large = (small_profile(training={"group_size": size, "groups_per_step": 1, "steps": 1}) for size in (2, 5))
    first = generate(small, groups=1, seed=0).calls
    again = generate(large, groups=1, seed=0).calls
    assert first.equals(again.filter(pl.col("execution_id").is_in(first["execution_id"].implode())))


def test_seeds_differ_and_repeat() -> None:
    profile = small_profile()
    one, two, again = (generate(profile, groups=3, seed=seed) for seed in (1, 2, 1))
    assert one.calls.equals(again.calls)
    assert not one.calls.equals(two.calls)


@pytest.mark.parametrize(("groups", "seed"), [(0, 0), (1, -1)])
def test_senseless_sizes_are_refused(groups: int, seed: int) -> None:
    with pytest.raises(InputError):
        generate(small_profile(), groups=groups, seed=seed)


def plain(**changes: object) -> Profile:
    """A profile without failures, sub-agents, effects of group or member, or compaction."""
    return small_profile(
        **{
            "calls": {"median": 60.0},
            "sub_agents": {},
            "failures": {},
            "compaction": None,
            "input_tokens": {"median": 1000.0},
            **changes,
        }
    )


def test_the_two_parts_have_the_shares_and_tail_asked_for() -> None:
    law = {"median": 0.5, "sigma": 1.0, "tail_share": 0.05, "tail_from": 60.0, "tail_alpha": 0.8, "cap": 600.0}
    wait = samples(generate(plain(tool_wait_s=law), groups=400, seed=0)).arrays()["tool_wait_s_per_call"]
    tail = wait[wait >= 60.0]
    share_error = np.sqrt(0.05 * 0.95 / len(wait))
    assert abs(len(tail) / len(wait) - 0.05) < 4 * share_error
    assert tail.max() <= 600.0
    # Survival function of a Pareto truncated at h: (x^-a - h^-a) / (l^-a - h^-a).
    beyond = (200.0**-0.8 - 600.0**-0.8) / (60.0**-0.8 - 600.0**-0.8)
    assert np.mean(tail > 200.0) == pytest.approx(beyond, abs=4 * np.sqrt(beyond / len(tail)))
    body = np.log(wait[wait < 60.0])
    assert body.mean() == pytest.approx(np.log(0.5), abs=4 / np.sqrt(len(body)))
    assert body.std() == pytest.approx(1.0, rel=0.02)


def test_compaction_keeps_contexts_near_the_threshold_and_comes_back_to_the_size_asked_for() -> None:
    compaction = {
        "threshold_tokens": 20_000,
        "summary_tokens": {"median": 1500.0},
        "context_after_tokens": {"median": 6000.0},
    }
    trace = generate(plain(compaction=compaction, calls={"median": 300.0}), groups=20, seed=0)
    found = samples(trace).compactions
    assert len(found) > 50
    assert found["context_after_tokens"].unique().to_list() == [6000]
    assert found["summary_tokens"].unique().to_list() == [1500]
    turn_inputs = trace.calls.filter(pl.col("role") == "main")["input_tokens"].to_numpy()
    assert turn_inputs.max() <= 20_000
    # Without the last turn's growth the context was still below the threshold; its growth and output are small.
    assert found["context_before_tokens"].to_numpy().min() > 20_000 - 10_000


def test_contexts_grow_by_output_and_growth_only() -> None:
    trace = generate(plain(growth_tokens={"median": 7.0}, output_tokens={"median": 11.0}), groups=2, seed=0)
    inputs = trace.calls.group_by("execution_id", maintain_order=True).agg("input_tokens")["input_tokens"]
    for row in inputs:
        assert np.array_equal(row.to_numpy(), 1000 + 18 * np.arange(len(row)))


def test_sub_agents_run_side_by_side_and_are_joined() -> None:
    profile = small_profile(
        sub_agents={"group_share": 1.0, "per_call": 0.4, "width": 2.0, "calls": {"median": 4.0}}, failures={}
    )
    trace = generate(profile, groups=30, seed=0)
    taken = samples(trace)
    assert taken.sub_agents["calls"].unique().to_list() == [4]
    widths = taken.spawns["width"].to_numpy()
    assert widths.mean() == pytest.approx(2.0, abs=4 * np.sqrt(2.0 / len(widths)))  # geometric: variance 2 at mean 2
    joins = trace.calls.filter(pl.col("wait_kind") == "subagent_join")
    assert len(joins) == len(taken.spawns)


def test_a_failed_set_up_leaves_no_calls_and_a_failed_scoring_no_reward() -> None:
    trace = generate(small_profile(failures={"setup": 0.3, "scoring": 0.3, "retry": 0.0}), groups=50, seed=0)
    failed = trace.executions.filter(pl.col("outcome") == "env_setup_failed")
    unscored = trace.executions.filter(pl.col("outcome") == "score_failed")
    assert 30 < len(failed) < 90
    assert failed["n_calls"].max() == 0
    assert len(unscored)
    assert unscored["reward"].null_count() == len(unscored)


def test_rewards_have_the_share_of_groups_without_spread() -> None:
    reward = {"flat_groups": 67 / 121, "flat_one": 0.9, "mean": 0.6, "concentration": 3.0, "levels": 10}
    trace = generate(small_profile(reward=reward, failures={}), groups=1000, seed=0)
    spread = trace.executions.group_by("group_id").agg(flat=pl.col("reward").min() == pl.col("reward").max())
    assert spread["flat"].mean() == pytest.approx(67 / 121, abs=4 * np.sqrt(0.25 / 1000))
    assert set(trace.executions["reward"]) <= {level / 10 for level in range(11)}


def test_set_up_times_have_the_published_quantiles() -> None:
    """Container set-up, Terminal-Bench: p50 6.6 s, p99 858 s."""
    profile = plain(setup_s={"median": 6.6, "sigma": 2.093, "cap": 5797.0}, calls={"median": 1.0})
    setup = generate(profile, groups=5000, seed=0).executions["setup_s"].to_numpy()
    assert np.median(setup) == pytest.approx(6.6, rel=0.08)
    assert np.quantile(setup, 0.99) == pytest.approx(858.0, rel=0.15)
    assert setup.max() <= 5797.0
