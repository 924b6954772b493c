"""The clock of a run."""

from __future__ import annotations

import time
from collections.abc import Callable


class RunClock:
    """Seconds since the run began. It never runs backwards, and stands still while nobody drives the run."""

    def __init__(self, start_s: float = 0.0, source: Callable[[], float] = time.monotonic) -> None:
        """Begin at `start_s`: 0 for a new run, the journal's last time for one that is taken up again."""
        self._source = source
        self._offset_s = start_s - source()
        self._last_s = start_s

    @property
    def now_s(self) -> float:
        """The time, in whole microseconds: finer is noise, and longer in every line of the journal."""
        self._last_s = max(self._last_s, round(self._source() + self._offset_s, 6))
        return self._last_s
