"""Group-relative advantages against their closed forms."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.errors import InputError
from gyre.trajectory.advantages import STD_EPSILON, Baseline, group_advantages

SCORES = st.none() | st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 1.0, -2.0])


def expected(score: float, others: list[float], baseline: Baseline) -> float:
    """Advantage of one score; `others` are those of its group that are valid."""
    members = [score, *others]
    if baseline is Baseline.NONE:
        return score
    if not others or len(set(members)) == 1:
        return 0.0
    if baseline is Baseline.LEAVE_ONE_OUT:
        return score - statistics.fmean(others)
    above = score - statistics.fmean(members)
    return above / (statistics.stdev(members) + STD_EPSILON) if baseline is Baseline.MEAN_STD else above


@given(st.lists(st.tuples(st.sampled_from("abc"), SCORES), max_size=12), st.sampled_from(Baseline))
def test_each_advantage_is_the_score_over_its_groups_baseline(
    members: list[tuple[str, float | None]], baseline: Baseline
) -> None:
    groups = [group for group, _ in members]
    score = np.array([math.nan if value is None else value for _, value in members])
    found = group_advantages(groups, score, baseline)
    codes = group_advantages(np.array(["abc".index(group) for group in groups], np.int32), score, baseline)
    np.testing.assert_array_equal(found, codes)
    for i, (group, value) in enumerate(members):
        others = [v for j, (g, v) in enumerate(members) if g == group and j != i and v is not None]
        assert found[i] == (0.0 if value is None else pytest.approx(expected(value, others, baseline), abs=1e-12))


@pytest.mark.parametrize(
    ("baseline", "advantages"),
    [
        (Baseline.MEAN, [0.5, -0.5]),
        (Baseline.MEAN_STD, [0.5 / (math.sqrt(0.5) + 1e-6), -0.5 / (math.sqrt(0.5) + 1e-6)]),
        (Baseline.LEAVE_ONE_OUT, [1.0, -1.0]),
        (Baseline.NONE, [1.0, 0.0]),
    ],
)
def test_two_executions(baseline: Baseline, advantages: list[float]) -> None:
    assert group_advantages(["g", "g"], np.array([1.0, 0.0]), baseline) == pytest.approx(advantages)


@pytest.mark.parametrize("baseline", [Baseline.MEAN, Baseline.MEAN_STD, Baseline.LEAVE_ONE_OUT])
@pytest.mark.parametrize("score", [[0.1, 0.1, 0.1], [0.7], [0.3, math.nan], [math.nan, math.nan], []])
def test_equal_scores_or_fewer_than_two_give_exactly_zero(baseline: Baseline, score: list[float]) -> None:
    assert group_advantages(["g"] * len(score), np.array(score, float), baseline).tolist() == [0.0] * len(score)


def test_a_missing_score_counts_for_no_baseline() -> None:
    found = group_advantages(["g", "g", "g"], np.array([1.0, math.nan, 0.0]), Baseline.MEAN)
    assert found.tolist() == [0.5, 0.0, -0.5]


def test_an_infinite_score_is_refused() -> None:
    with pytest.raises(InputError, match="infinite"):
        group_advantages(["g", "g"], np.array([1.0, math.inf]), Baseline.MEAN)
