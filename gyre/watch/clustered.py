"""The mean of values that come in groups, and how far it can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self


@dataclass(slots=True)
class Clustered:
    """A mean over executions, with a standard error that takes groups, not executions, as independent.

    Executions of one group share a task, so their scores are alike; an error that took each for independent would be
    too small. Group g adds n_g values of sum s_g. The mean is m = sum(s) / sum(n), and its squared error
    G / (G - 1) * sum((s_g - m n_g)^2) / sum(n)^2 (Cochran, Sampling Techniques, 3rd ed. 1977, section 6.3: the ratio
    estimate). Only sums are held, so that means of several steps can be added.
    """

    groups: int = 0  # with at least one value
    count: int = 0
    total: float = 0.0
    count_squares: float = 0.0
    total_squares: float = 0.0
    products: float = 0.0  # n_g s_g

    def add(self, count: int, total: float) -> None:
        """Take the values of one group; a group without values changes nothing."""
        if count:
            self.groups += 1
            self.count += count
            self.total += total
            self.count_squares += count * count
            self.total_squares += total * total
            self.products += count * total

    @property
    def mean(self) -> float | None:
        """The mean; None without values."""
        return self.total / self.count if self.count else None

    @property
    def error(self) -> float | None:
        """Standard error of the mean; None with fewer than two groups."""
        mean = self.mean
        if mean is None or self.groups < 2:
            return None
        squares = self.total_squares - 2.0 * mean * self.products + mean * mean * self.count_squares
        return math.sqrt(max(0.0, squares) * self.groups / (self.groups - 1)) / self.count

    def __add__(self, other: Self) -> Self:
        """Values of both; a group that is in both counts twice."""
        return type(self)(
            self.groups + other.groups,
            self.count + other.count,
            self.total + other.total,
            self.count_squares + other.count_squares,
            self.total_squares + other.total_squares,
            self.products + other.products,
        )


def difference_in_errors(high: Clustered, low: Clustered) -> float:
    """Return (mean of `high` - mean of `low`) over the standard error of that difference.

    NaN where a mean is missing; infinite where neither has an error and the means differ.
    """
    if high.mean is None or low.mean is None:
        return math.nan
    error = math.hypot(high.error or 0.0, low.error or 0.0)
    difference = high.mean - low.mean
    if error > 0.0:
        return difference / error
    return math.copysign(math.inf, difference) if difference else 0.0
