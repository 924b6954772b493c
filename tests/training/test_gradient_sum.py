"""Sums of gradients in whatever order they come."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("megatron.core", reason="training stands on megatron-core")
from gyre.backends.training.elastic_step import ElasticStep, GoneError
from gyre.backends.training.figures import Figures
from gyre.backends.training.gradient_sum import ExactSum, RunningSum

SIZE = 50
GRADIENTS = np.random.default_rng(0).normal(0, 1, (8, SIZE)).astype(np.float32) * 10.0 ** np.arange(-4, 4)[:, None]
GRADIENTS = GRADIENTS.astype(np.float32)
CORRECT = np.array([math.fsum(column) for column in GRADIENTS.astype(float).T])


@settings(max_examples=30)
@given(st.permutations(range(8)), st.integers(0, 9))
def test_the_exact_sum_does_not_depend_on_the_order_nor_on_what_spills(order: list[int], held: int) -> None:
    with TemporaryDirectory() as folder:
        sums = [ExactSum(SIZE, Path(folder) / str(n), n * 4 * SIZE) for n in (9, held)]
        for number in range(8):
            sums[0].add(number, GRADIENTS[number])
        for number in order:
            sums[1].add(number, GRADIENTS[number].copy())
        assert np.array_equal(sums[0].total(), sums[1].total())
        np.testing.assert_allclose(sums[1].total(), CORRECT, rtol=1e-6)
        for each in sums:
            each.close()
        assert not list(Path(folder).iterdir())


@given(st.permutations(range(8)))
def test_the_running_sum_is_right_to_the_last_bit_or_so(order: list[int]) -> None:
    running = RunningSum(SIZE)
    for number in order:
        running.add(number, GRADIENTS[number])
    np.testing.assert_allclose(running.total(), CORRECT, rtol=1e-6)


def test_a_step_begun_again_counts_nothing_of_the_attempt_before() -> None:
    """After a crash of the core: what cells still send of the first attempt is refused."""
    step = ElasticStep(10.0, lambda: RunningSum(SIZE))
    for attempt in ("first", "second"):
        step.open(7, attempt)
        for number in (0, 1):
            step.offer(number, 0, b"")
        step.add_executions(2)
        assert step.claim(attempt, 1, 0.0) is not None
        assert step.commit(attempt, 0, GRADIENTS[0], Figures(tokens=3))
    with pytest.raises(GoneError):
        step.commit("first", 1, GRADIENTS[1], Figures())
    with pytest.raises(RuntimeError, match="of 2 micro-steps 1 are done"):
        step.close()
    assert not step.commit("second", 0, GRADIENTS[5], Figures()), "the first one counts"
    assert step.commit("second", 1, GRADIENTS[1], Figures(tokens=4))
    step.close()
    with pytest.raises(GoneError):
        step.claim("second", 2, 0.0)
    summed = step.total()
    np.testing.assert_array_equal(summed.gradient, (GRADIENTS[0].astype(float) + GRADIENTS[1]).astype(np.float32))
    assert (summed.executions, summed.figures.tokens) == (2, 7)
