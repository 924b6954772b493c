"""Whole runs whose times are known in closed form (1e-9), through the same interface as any simulation."""

from __future__ import annotations

import numpy as np
import pytest
from toy_runs import hardware, program, settings, simulate, update_times

from gyre.commands import OfferMicroSteps
from gyre.events import LoadReport
from gyre.sim.closed_forms import bounded_staleness_period, fixed_split_period, harmonic

EXACT = 1e-9


def period(times: list[float], over: int) -> float:
    """Mean time between the last `over` updates."""
    return (times[-1] - times[-1 - over]) / over


def test_colocate_step_and_serving_use() -> None:
    """Totals [3, 5, 9, 4] on four cells, training 6: step 15, serving use 7/12."""
    run = settings("colocate", cells=4, capacity=1, groups=1, size=4, steps=3)
    entries = simulate(run, program([[3, 5, 9, 4]], decode=True), hardware(update_s=6.0))
    assert update_times(entries) == pytest.approx([15, 30, 45], rel=EXACT)
    busy = {entry.cell: entry.busy_s for entry in entries if isinstance(entry, LoadReport)}
    assert sum(busy.values()) / (4 * 3 * 9) == pytest.approx(7 / 12, rel=EXACT)


@pytest.mark.parametrize(("training_s", "expected_s"), [(10, 10), (4, 5), (5, 5)])
def test_async_without_bound_on_staleness(training_s: float, expected_s: float) -> None:
    """Period max(B*L/C, T) with C 64, B 32, L 10."""
    run = settings("async", cells=2, capacity=64, groups=32, size=1, steps=40, phi=60, train_cells=1)
    times = update_times(simulate(run, program([[10.0]] * 32), hardware(update_s=training_s)))
    assert period(times, 20) == pytest.approx(expected_s, rel=EXACT)


@pytest.mark.parametrize("capacity", [64, 16])
@pytest.mark.parametrize("eta", [0, 1, 2, 3, 5])
def test_bounded_staleness(eta: int, capacity: int) -> None:
    """B 16, L 10, T 4: period max(T, B*L/C, (L + T)/(eta + 1)) and, with C 64, staleness exactly eta."""
    run = settings("async", cells=2, capacity=capacity, groups=16, size=1, steps=120, phi=eta, train_cells=1)
    entries = simulate(run, program([[10.0]] * 16), hardware(update_s=4.0))
    expected = bounded_staleness_period(16, capacity, 10.0, 4.0, eta)
    assert period(update_times(entries), 60) == pytest.approx(expected, rel=EXACT)
    taken = [entry.step - entry.version for entry in entries if isinstance(entry, OfferMicroSteps)]
    assert set(taken[-32:]) == {eta}


@pytest.mark.parametrize(
    ("order", "expected_s"),
    [([1.0] * 12 + [4.0], 7.0), ([4.0] + [1.0] * 12, 4.0)],
    ids=["list", "longest first"],
)
def test_list_scheduling(order: list[float], expected_s: float) -> None:
    """Four slots, m(m-1) unit jobs and one of m: 7 in list order, 4 with the longest first."""
    run = settings("colocate", cells=1, capacity=4, groups=13, size=1, steps=1)
    assert update_times(simulate(run, program([[length] for length in order]), hardware())) == pytest.approx(
        [expected_s]
    )


def test_longest_first_is_not_optimal() -> None:
    """LPT on three slots with [5, 5, 4, 4, 3, 3, 3]: 11 against 9."""
    run = settings("colocate", cells=1, capacity=3, groups=7, size=1, steps=1)
    jobs = [5, 5, 4, 4, 3, 3, 3]
    assert update_times(simulate(run, program([[float(job)] for job in jobs]), hardware())) == pytest.approx([11])
    best = [5, 5, 3, 3, 4, 4, 3]  # slots get {5, 4}, {5, 4}, {3, 3, 3}
    assert update_times(simulate(run, program([[float(job)] for job in best]), hardware())) == pytest.approx([9])


@pytest.mark.parametrize(("train_cells", "expected_s"), [(8, 100.0), (16, 150.0)])
def test_fixed_split(train_cells: int, expected_s: float) -> None:
    """Serving work 2400 and training work 800 GPU-seconds a step on 32 GPUs: 100 at 24:8, 150 at 16:16."""
    serving = 32 - train_cells
    run = settings("async", cells=32, capacity=1, groups=96, size=1, steps=30, phi=3, train_cells=train_cells)
    run = run.model_copy(update={"training": run.training.model_copy(update={"micro_step_tokens": 1})})
    # 96 executions of 25 s; 96 micro-steps of 25/3 s.
    on = hardware(train_tokens_per_s=3 / 25)
    times = update_times(simulate(run, program([[25.0]] * 96), on))
    assert period(times, 10) == pytest.approx(expected_s, rel=EXACT)
    assert fixed_split_period(2400, 800, serving, train_cells) == pytest.approx(expected_s, rel=EXACT)


def test_colocate_packs_as_well_as_the_best_split() -> None:
    """The same work on the same GPUs, all of them always busy: 2400/32 + 800/32 = 100 without a cost of switching."""
    run = settings("colocate", cells=32, capacity=1, groups=96, size=1, steps=5)
    run = run.model_copy(update={"training": run.training.model_copy(update={"micro_step_tokens": 1})})
    times = update_times(simulate(run, program([[25.0]] * 96), hardware(train_tokens_per_s=3 / 25)))
    assert times == pytest.approx([100, 200, 300, 400, 500], rel=EXACT)


def test_a_synchronous_step_waits_for_the_longest_of_512() -> None:
    """E[max of 512 Exp(1)] = H_512 = 6.8165: the mean step of colocate without staleness, within 4 standard errors."""
    steps = 100
    lengths = np.random.default_rng(5).exponential(1.0, (512 * steps, 1))
    run = settings("colocate", cells=1, capacity=512, groups=512, size=1, steps=steps)
    times = np.diff([0.0, *update_times(simulate(run, program(lengths.tolist()), hardware()))])
    error = times.std(ddof=1) / np.sqrt(steps)
    assert error < 0.2
    assert abs(times.mean() - harmonic(512)) < 4 * error
    assert harmonic(512) == pytest.approx(6.8165, abs=5e-5)


@pytest.mark.parametrize(("phi", "mu"), [(0, 1), (1, 1), (0.5, 2), (1.5, 3)])
@pytest.mark.parametrize("policy", ["colocate", "async", "elastic"])
def test_mean_scheduling_staleness(policy: str, phi: float, mu: int) -> None:
    """Boundary dispatch: phi + (mu - 1)/2 over whole bursts, once the queue is filled."""
    steps = 40 * mu
    run = settings(policy, cells=3, capacity=8, groups=4, size=2, steps=steps, phi=phi, mu=mu)
    lengths = [[float(3 + 7 * ((17 * group + member) % 5)) for member in range(2)] for group in range(50)]
    entries = simulate(run, program(lengths), hardware(update_s=1.0, switch_s=0.5))
    taken = [entry.step - entry.version for entry in entries if isinstance(entry, OfferMicroSteps)]
    settled = taken[len(taken) // 2 :]
    assert sum(settled) / len(settled) == pytest.approx(phi + (mu - 1) / 2, abs=0.05)
