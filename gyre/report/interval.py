"""Confidence intervals of a ratio of sums, by bootstrap."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from .figures_base import Figures

_RESAMPLES: Final = 9999


class Interval(Figures):
    """A confidence interval, and what was resampled for it: whole runs (seeds), or the bursts of one pair of runs."""

    low: float
    high: float
    level: float = 0.95
    source: Literal["seeds", "bursts", "given"] = "given"


def _ratio(base: Any, own: Any, axis: int = -1) -> Any:
    return np.sum(base, axis=axis) / np.sum(own, axis=axis)


def ratio_interval(
    base: Sequence[float], own: Sequence[float], *, source: Literal["seeds", "bursts"], level: float = 0.95
) -> Interval | None:
    """Return an interval of sum(base) / sum(own), resampling pairs; None for fewer than two pairs.

    Bias-corrected and accelerated (Efron 1987, `scipy.stats.bootstrap`), by percentiles where that is not defined, as
    for pairs whose ratios are all alike. Draws have a fixed seed: the same runs give the same interval.
    """
    found = bootstrap(_ratio, base, own, level=level)
    return None if found is None else Interval(low=found[0], high=found[1], level=level, source=source)


def mean_interval(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float] | None:
    """Return an interval of the mean of `values`, resampling them; None for fewer than two. See `ratio_interval`."""
    return bootstrap(np.mean, values, level=level)


def bootstrap(statistic: Any, *samples: Sequence[float], level: float) -> tuple[float, float] | None:
    """Return (low, high) of a statistic of paired samples, resampling pairs; None for fewer than two of them.

    `statistic` takes arrays and `axis`.
    """
    if len(samples[0]) < 2:
        return None
    from scipy import stats  # a second to import, which few callers need

    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            found = stats.bootstrap(
                tuple(np.asarray(values, dtype=np.float64) for values in samples),
                statistic,
                paired=True,
                vectorized=True,
                n_resamples=_RESAMPLES,
                confidence_level=level,
                method=method,
                rng=np.random.default_rng(0),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            return float(found.low), float(found.high)
    return None
