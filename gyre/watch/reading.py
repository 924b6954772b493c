"""What one condition says at one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .clustered import Clustered
from .figures import StepFigures
from .settings import AlertName

Key = tuple[AlertName, str]  # a condition and what it is about
_MARGIN: Final = 0.1  # share of a threshold by which a level must be on the right side again


@dataclass(frozen=True, slots=True)
class Reading:
    """One condition now. Neither `breached` nor `clear`: in between, where nothing changes. See `Alert`."""

    name: AlertName
    subject: str
    value: float
    threshold: float
    breached: bool
    clear: bool
    sentence: str
    reference: float | None = None

    @property
    def key(self) -> Key:
        """The condition."""
        return self.name, self.subject


def above(name: AlertName, value: float, high: float, sentence: str) -> Reading:
    """Return a level that must not exceed `high`."""
    return Reading(name, "", value, high, value > high, value <= high * (1 - _MARGIN), sentence)


def below(name: AlertName, value: float, low: float, sentence: str) -> Reading:
    """Return a level that must not be less than `low`."""
    return Reading(name, "", value, low, value < low, value >= low * (1 + _MARGIN), sentence)


def pooled(steps: Sequence[StepFigures], key: str) -> Clustered:
    """Return a figure over the groups that these steps trained."""
    total = Clustered()
    for step in steps:
        if key in step.means:
            total = total + step.means[key]
    return total


def percent(share: float) -> str:
    """Return a share in words."""
    return f"{100 * share:.0f} %"
