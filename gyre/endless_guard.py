"""Refuses a run that would go on for ever: one that makes no update, whatever happens."""

from __future__ import annotations

from collections import Counter
from typing import Final

from .errors import InputError

_MOST_BARREN_BOUNDARIES: Final = 100
_FEWEST_EVENTS_TO_GIVE_UP: Final = 100_000
_MOST_EVENTS_OF_AN_EXECUTION: Final = 200


class EndlessGuard:
    """Counts events and boundaries since the last update: a step needs tens of events an execution, not thousands."""

    def __init__(self, policy: str, executions_in_flight: int) -> None:
        self._policy = policy
        self._most_events = _FEWEST_EVENTS_TO_GIVE_UP + _MOST_EVENTS_OF_AN_EXECUTION * executions_in_flight
        self._events = 0
        self._barren_boundaries = 0
        self._dropped: Counter[str] = Counter()  # groups since the last update, by reason

    def updated(self) -> None:
        """An update was made, or the run was taken up again."""
        self._events = self._barren_boundaries = 0
        self._dropped.clear()

    def dropped(self, reason: str) -> None:
        """A group was dropped that no update has used."""
        self._dropped[reason] += 1

    def event(self, step: int) -> None:
        """Count an event in `step`; raise InputError where there were too many."""
        self._events += 1
        if self._events > self._most_events:
            raise InputError(
                f"policy {self._policy}: no update after {self._events} events, in step {step}; it moves cells back "
                "and forth, or dispatches without ever training"
            )

    def barren_boundary(self) -> None:
        """Count a burst that ended without an update; raise InputError where there were too many in a row."""
        self._barren_boundaries += 1
        if self._barren_boundaries > _MOST_BARREN_BOUNDARIES:
            reasons = ", ".join(f"{reason} ({groups})" for reason, groups in self._dropped.most_common(3))
            raise InputError(
                f"no step can be made: all groups of {_MOST_BARREN_BOUNDARIES} dispatches in a row were dropped: "
                f"{reasons}; look at the time-outs, at the scores, at min_group_members and at what the buffer drops"
            )
