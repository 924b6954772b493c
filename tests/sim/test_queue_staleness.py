"""Staleness of a continuous asynchronous queue against the closed form and six published rows of Applied Compute."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from toy_runs import hardware, program, settings, simulate

from gyre.commands import OfferMicroSteps
from gyre.events import ExecutionStarted, UpdateApplied
from gyre.sim.closed_forms import queue_staleness

GROUP = 8
STEPS, FILLED = 400, 100  # the queue is full long before the second

# in flight C, samples a step B, queue in batches q, serving rate / training rate, E[longest] / E[length]
ROWS = [
    (120, 240, 2, 0.63, 1.42),
    (240, 120, 2, 0.92, 1.43),
    (128, 128, 2, 1.07, 1.44),
    (240, 120, 1, 0.86, 1.42),
    (120, 120, 1, 0.67, 1.42),
    (128, 128, 1, 1.14, 1.45),
]


def lengths_of_tail(tail: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """2,000 groups of lognormal lengths, mean 1, whose longest is `tail` times the mean on average."""
    normal = np.random.default_rng(0).standard_normal((20_000, GROUP))

    def excess(sigma: float) -> float:
        drawn = np.exp(sigma * normal)
        return float(drawn.max(axis=1).mean() / drawn.mean()) - tail

    drawn = np.exp(brentq(excess, 0.05, 2.0) * np.random.default_rng(1).standard_normal((2_000, GROUP)))
    return np.asarray(drawn / drawn.mean())


@pytest.mark.parametrize(("in_flight", "batch", "queue", "rho", "tail"), ROWS)
def test_staleness_from_a_groups_start_to_its_training(
    in_flight: int, batch: int, queue: int, rho: float, tail: float
) -> None:
    """Within 5 % of the formula for two batches of queue, within 0.15 versions for one."""
    run = settings(
        "async",
        cells=2,
        capacity=in_flight,
        groups=batch // GROUP,
        size=GROUP,
        steps=STEPS,
        train_cells=1,
        dispatch="continuous",
        in_flight=in_flight,
        queue_batches=queue,
    )
    entries = simulate(run, program(lengths_of_tail(tail).tolist()), hardware(update_s=rho * batch / in_flight))
    version, started, staleness = 0, {}, []
    for entry in entries:
        if isinstance(entry, UpdateApplied):
            version = entry.version
        elif isinstance(entry, ExecutionStarted):
            started.setdefault(entry.execution // GROUP, version)
        elif isinstance(entry, OfferMicroSteps) and entry.step > FILLED:
            staleness.append(entry.step - started[entry.group])
    expected = queue_staleness(in_flight, batch, queue, rho, tail)
    tolerance = {"rel": 0.05} if queue >= 2 else {"abs": 0.15}
    assert sum(staleness) / len(staleness) == pytest.approx(expected, **tolerance)
