"""Alerts over a run: each condition begins once, and ends once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from . import levels
from .alert import SEVERITIES, Alert
from .falls import Falls
from .figures import StepFigures
from .hacking import reward_hacking
from .reading import Key, Reading
from .settings import WatchSettings

_LEVELS: Final = (
    levels.completion_low,
    levels.kl_high,
    levels.zero_variance_high,
    levels.invalid_high,
    levels.staleness_high,
    levels.long_tasks_starved,
    reward_hacking,
)


@dataclass(slots=True)
class _Run:
    """Steps in a row that a condition was breached, or clear."""

    breached: int = 0
    clear: int = 0

    def take(self, reading: Reading) -> None:
        self.breached = self.breached + 1 if reading.breached else 0
        self.clear = self.clear + 1 if reading.clear else 0


class AlertBook:
    """Reads every condition after each step.

    An alert begins when its condition holds for `hold` steps in a row, and ends when it is clear for as many: well on
    the right side, not just back at the threshold. So a figure that hovers there is one alert.
    """

    def __init__(self, settings: WatchSettings) -> None:
        self.settings = settings
        self.alerts: list[Alert] = []
        self._falls = Falls(settings)
        self._runs: dict[Key, _Run] = {}
        self._places: dict[Key, int] = {}  # of alerts that go on

    @classmethod
    def of(cls, settings: WatchSettings, steps: Sequence[StepFigures]) -> AlertBook:
        """Return the book after these steps."""
        book = cls(settings)
        for count in range(1, len(steps) + 1):
            book.update(steps[:count])
        return book

    def update(self, steps: Sequence[StepFigures]) -> tuple[Alert, ...]:
        """Take the last of `steps` (all so far); return the alerts that began or ended with it."""
        if len(steps) < self.settings.window:
            return ()
        self._falls.note(steps)
        changes = (self._changed(reading, steps[-1]) for reading in list(self._readings(steps)))
        return tuple(alert for alert in changes if alert is not None)

    def _readings(self, steps: Sequence[StepFigures]) -> Iterator[Reading]:
        active = {key: self.alerts[place] for key, place in self._places.items()}
        off = self.settings.off
        for read in _LEVELS:
            yield from (reading for reading in read(self.settings, steps) if reading.name not in off)
        falls = self._falls
        for readings in (falls.forgetting(steps), falls.tool_calls_collapse(steps), falls.rule_falls(steps, active)):
            yield from (reading for reading in readings if reading.name not in off)

    def _changed(self, reading: Reading, step: StepFigures) -> Alert | None:
        run, place = self._runs.setdefault(reading.key, _Run()), self._places.get(reading.key)
        run.take(reading)
        if place is None:
            return self._begin(reading, step) if run.breached >= self.settings.hold else None
        if run.clear >= self.settings.hold:
            del self._places[reading.key]
            self.alerts[place] = replace(self.alerts[place], ended_step=step.step, ended_s=step.time_s)
            return self.alerts[place]
        return None

    def _begin(self, reading: Reading, step: StepFigures) -> Alert:
        self._places[reading.key] = len(self.alerts)
        alert = Alert(
            step=step.step,
            time_s=step.time_s,
            name=reading.name,
            subject=reading.subject,
            severity=SEVERITIES[reading.name],
            value=reading.value,
            threshold=reading.threshold,
            sentence=reading.sentence,
            reference=reading.reference,
        )
        self.alerts.append(alert)
        return alert
