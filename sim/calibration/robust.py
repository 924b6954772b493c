"""Least squares for times: they cannot be negative, errors grow with them, and a stall must not bend all.

Times on a busy machine are skewed: most are near the least that is possible, some are far above. A simulator that is
to tell how long a run takes needs means, so medians will not do; but one measurement of a machine that slept must not
count in full. So a fit with Huber's weights says what is usual, and how much more is added where there is more to do;
values over `CUT` times the usual are cut down to that; and all is brought to the level of the means of what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import nnls

from gyre.arrays import BoolArray, FloatArray

CUT: Final = 5.0  # times the usual that a value counts for at most
_HUBER: Final = 1.345  # 95 % as efficient as least squares where errors are normal (Huber 1981)
_ROUNDS: Final = 50
_NORMAL: Final = 1.4826  # standard deviation over median absolute deviation of a normal distribution
_EXACT: Final = 1e-12  # relative residuals below this are rounding


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured figure; `spread` is its standard error, `samples` how many measurements it rests on."""

    value: float
    spread: float
    samples: int


def fit(
    rows: FloatArray, target: FloatArray, doubt: FloatArray | None = None, kinds: Sequence[int] | None = None
) -> tuple[Estimate, ...]:
    """Return x >= 0, (P,), for which rows @ x tells the target, (R,).

    Errors are taken to grow with what is fitted, and with `doubt`, (R,), 1 where it is left out. Columns of one kind,
    of `kinds` (P,), are brought to the level of the means by one factor; left out: all by the same. Standard errors
    are heteroscedasticity-consistent (White 1980); a column without a row that depends on it has 0 samples.
    """
    doubt = np.ones(len(target)) if doubt is None else doubt
    kind = np.zeros(rows.shape[1], np.int64) if kinds is None else np.array(kinds)
    shape, design, _ = _solved(rows, target, doubt, robust=True)
    usual = rows @ shape
    cut = np.where(usual > 0, np.minimum(target, CUT * usual), target)
    parts = np.stack([rows @ np.where(kind == one, shape, 0.0) for one in range(kind.max() + 1)], axis=1)
    level, _, residual = _solved(parts, cut, doubt, robust=False)
    x = shape * level[kind]
    spread = _spread(design, residual, x > 0)
    samples = np.count_nonzero(rows, axis=0)
    return tuple(
        Estimate(float(value), float(error), int(count)) for value, error, count in zip(x, spread, samples, strict=True)
    )


def typical(seconds: list[float]) -> Estimate | None:
    """Return the mean of measurements, of which none counts for more than `CUT` times the usual; None of none."""
    if not seconds:
        return None
    values = np.array(seconds, np.float64)
    (estimate,) = fit(np.ones((len(values), 1)), values)
    return Estimate(estimate.value, estimate.spread, len(values))


def _solved(
    rows: FloatArray, target: FloatArray, doubt: FloatArray, *, robust: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return x (P,), the scaled rows (R, P) and the scaled residuals (R,); the scale follows what is fitted."""
    least = 0.1 * max(float(np.median(target)), _EXACT)
    scale, weight = doubt * max(float(np.median(target)), _EXACT), np.ones(len(target))
    x = np.zeros(rows.shape[1])
    for _ in range(_ROUNDS):
        last, x = x, _non_negative(rows / scale[:, None], target / scale, np.sqrt(weight))
        fitted = rows @ x
        residual = (fitted - target) / scale
        scale = doubt * (fitted + least)
        if robust:
            width = max(_NORMAL * float(np.median(np.abs(residual))), _EXACT)
            weight = np.minimum(1.0, _HUBER * width / np.maximum(np.abs(residual), width * 1e-9))
        if np.allclose(x, last, rtol=1e-9, atol=0.0):
            break
    return x, rows / scale[:, None], residual


def _non_negative(design: FloatArray, wanted: FloatArray, root: FloatArray) -> FloatArray:
    size = np.sqrt(np.sum(np.square(design), axis=0))
    size[size == 0] = 1.0  # a figure that nothing depends on
    x, _norm = nnls(design / size * root[:, None], wanted * root)
    return np.asarray(x / size, np.float64)


def _spread(design: FloatArray, residual: FloatArray, active: BoolArray) -> FloatArray:
    """Standard errors of the figures above 0, others 0."""
    spread = np.zeros(design.shape[1])
    used = design[:, active]
    if used.size and len(used) > used.shape[1]:
        size = np.sqrt(np.sum(np.square(used), axis=0))
        used = used / size
        bread = np.linalg.pinv(used.T @ used)
        meat = used.T @ (used * np.square(residual)[:, None])
        freedom = len(used) / (len(used) - used.shape[1])
        spread[active] = np.sqrt(np.maximum(np.diag(bread @ meat @ bread) * freedom, 0.0)) / size
    return spread
