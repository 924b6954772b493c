"""The unit in which lengths of time read well: seconds, minutes or hours."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

_LEAST: Final = 2.0  # of a unit: 100 s read better than 1.7 minutes, 100 minutes better than 1.7 hours


class TimeUnit(Enum):
    """A unit of time: its name in the plural, its symbol, and its length in seconds."""

    SECONDS = ("seconds", "s", 1.0)
    MINUTES = ("minutes", "min", 60.0)
    HOURS = ("hours", "h", 3600.0)

    def __init__(self, title: str, symbol: str, seconds: float) -> None:
        self.title = title
        self.symbol = symbol
        self.seconds = seconds

    @property
    def gpu_digits(self) -> int:
        """Decimals of GPU time in this unit: thousands of GPU-hours need none, a few GPU-minutes do."""
        return 0 if self is TimeUnit.HOURS else 1

    def of(self, seconds: float) -> float:
        """Return `seconds` in this unit."""
        return seconds / self.seconds


def time_unit(seconds: Iterable[float | None], most: TimeUnit = TimeUnit.HOURS) -> TimeUnit:
    """Return the unit for times that are shown together: the largest of which the longest has at least two.

    `most` is the largest unit that is looked at. Times that are not known (None) do not count.
    """
    longest_s = max((value for value in seconds if value is not None), default=0.0)
    fitting = [unit for unit in TimeUnit if unit.seconds <= most.seconds and longest_s >= _LEAST * unit.seconds]
    return fitting[-1] if fitting else TimeUnit.SECONDS
