"""The simulated evaluators: so many evaluations at once, the others wait in the order in which they were asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

from .context import Context


class Evaluators:
    """Calls back when an evaluation has had its time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._places = context.settings.cluster.evaluators  # None: as many as are asked for
        self._busy = 0
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()

    def evaluate(self, seconds: float, done: Callable[[], None]) -> None:
        """Evaluate for so long, as soon as an evaluator is free, then call `done`."""
        if self._places is not None and self._busy >= self._places:
            self._waiting.append((seconds, done))
            return
        self._busy += 1
        self._context.after(seconds, lambda event: self._ended(event, done))

    def _ended(self, _: simpy.Event, done: Callable[[], None]) -> None:
        self._busy -= 1
        if self._waiting:
            self.evaluate(*self._waiting.popleft())
        done()
