"""Textbook results: the worked cases, and what theory says of their order."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.sim.closed_forms import (
    bounded_staleness_period,
    elastic_period,
    fixed_split_period,
    harmonic,
    list_schedule,
    lpt,
    malleable_bound,
    mcnaughton,
    queue_staleness,
)

JOBS = st.lists(st.integers(1, 50).map(float), min_size=1, max_size=7)
MACHINES = st.integers(1, 4)


def optimum(jobs: list[float], machines: int) -> float:
    """Best makespan without preemption, by trying every assignment."""
    return min(
        max(sum(job for job, machine in zip(jobs, places, strict=True) if machine == m) for m in range(machines))
        for places in itertools.product(range(machines), repeat=len(jobs))
    )


def test_list_scheduling_at_its_worst() -> None:
    assert list_schedule([1.0] * 12 + [4.0], 4) == 7.0
    assert list_schedule([4.0] + [1.0] * 12, 4) == 4.0


def test_lpt_at_its_worst() -> None:
    assert lpt([5, 5, 4, 4, 3, 3, 3], 3) == 11.0
    assert optimum([5, 5, 4, 4, 3, 3, 3], 3) == 9.0


def test_mcnaughton_and_malleable() -> None:
    assert mcnaughton([3, 5, 9, 4], 2) == pytest.approx(21 / 2, abs=1e-9)
    assert mcnaughton([3, 5, 90, 4], 2) == 90.0
    assert malleable_bound([40, 30, 20, 10], [4, 2, 4, 1], 8) == pytest.approx(15.0, abs=1e-9)
    assert malleable_bound([40, 30, 20, 10], [8, 8, 8, 8], 8) == pytest.approx(100 / 8, abs=1e-9)


def test_elastic_packing_against_fixed_splits() -> None:
    assert elastic_period(2400, 800, 32) == pytest.approx(100, abs=1e-9)
    assert fixed_split_period(2400, 800, 24, 8) == pytest.approx(100, abs=1e-9)
    assert fixed_split_period(2400, 800, 16, 16) == pytest.approx(150, abs=1e-9)
    assert min(fixed_split_period(2400, 800, serving, 32 - serving) for serving in range(1, 32)) == 100


def test_expected_longest_of_512() -> None:
    assert harmonic(512) == pytest.approx(6.8165, abs=5e-5)
    assert harmonic(0) == 0.0
    assert harmonic(4) == pytest.approx(25 / 12, rel=1e-15)


@pytest.mark.parametrize(("training_s", "period_s"), [(10, 10), (4, 5), (5, 5)])
def test_asynchronous_period_without_a_bound_on_staleness(training_s: float, period_s: float) -> None:
    assert bounded_staleness_period(32, 64, 10, training_s, math.inf) == pytest.approx(period_s, abs=1e-9)


@pytest.mark.parametrize(("capacity", "periods"), [(64, (14, 7, 14 / 3, 4, 4)), (16, (14, 10, 10, 10, 10))])
def test_asynchronous_period_with_bounded_staleness(capacity: int, periods: tuple[float, ...]) -> None:
    got = [bounded_staleness_period(16, capacity, 10, 4, eta) for eta in (0, 1, 2, 3, 5)]
    assert got == pytest.approx(list(periods), abs=1e-9)


@pytest.mark.parametrize(
    ("setting", "versions"),
    [
        ((120, 240, 2, 0.63, 1.42), 1.34),
        ((240, 120, 2, 0.92, 1.43), 3.78),
        ((128, 128, 2, 1.07, 1.44), 3.25),
        ((240, 120, 1, 0.86, 1.42), 3.70),
        ((120, 120, 1, 0.67, 1.42), 2.09),
        ((128, 128, 1, 1.14, 1.45), 2.21),
    ],
)
def test_queue_staleness_gives_the_published_column(
    setting: tuple[int, int, int, float, float], versions: float
) -> None:
    """Settings are C, B, q, rho and M_tail of the published table."""
    assert queue_staleness(*setting) == pytest.approx(versions, abs=0.0051)


@given(jobs=JOBS, machines=MACHINES)
def test_makespans_keep_their_order_and_guarantees(jobs: list[float], machines: int) -> None:
    best = optimum(jobs, machines)
    assert mcnaughton(jobs, machines) <= best + 1e-9
    assert best <= list_schedule(jobs, machines) <= (2 - 1 / machines) * best + 1e-9
    assert best <= lpt(jobs, machines) <= (4 / 3 - 1 / (3 * machines)) * best + 1e-9


@given(jobs=JOBS, machines=MACHINES)
def test_more_machines_never_raise_a_bound(jobs: list[float], machines: int) -> None:
    assert mcnaughton(jobs, machines + 1) <= mcnaughton(jobs, machines)
    caps = [1.0] * len(jobs)
    assert malleable_bound(jobs, caps, machines) == pytest.approx(mcnaughton(jobs, machines))


@given(serve=st.floats(0, 1e6), train=st.floats(0, 1e6), gpus=st.integers(2, 64), serving=st.integers(1, 63))
def test_no_fixed_split_beats_elastic(serve: float, train: float, gpus: int, serving: int) -> None:
    serving = min(serving, gpus - 1)
    split_s = fixed_split_period(serve, train, serving, gpus - serving)
    assert elastic_period(serve, train, gpus) <= split_s * (1 + 1e-12)


def test_no_machine_is_refused() -> None:
    for schedule in (mcnaughton, list_schedule, lpt):
        with pytest.raises(ValueError, match="at least one machine"):
            schedule([1.0], 0)
