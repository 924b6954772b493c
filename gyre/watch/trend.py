"""Whether a series rises or falls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trend:
    """A robust line through a series with one value a step, and the chance of such an order without any trend."""

    slope: float  # a step: the median of the slopes between all pairs (Theil 1950, Sen 1968)
    rise: float  # slope times the steps from first to last
    p_rises: float  # one-sided, Mann-Kendall: Kendall's tau of values and time
    p_falls: float


def trend(values: Sequence[float]) -> Trend:
    """Return the trend of at least two values. A series of equal values has none: both chances are 1."""
    from scipy import stats  # a second to import, which short runs need not pay

    if max(values) == min(values):
        return Trend(0.0, 0.0, 1.0, 1.0)
    slope = float(stats.theilslopes(values).slope)
    steps = range(len(values))
    rises, falls = (float(stats.kendalltau(steps, values, alternative=side).pvalue) for side in ("greater", "less"))
    return Trend(slope, slope * (len(values) - 1), rises, falls)
