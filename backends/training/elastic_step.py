"""The core's side of a step whose gradients several cells compute, without clock and without I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gyre.arrays import Float32Array

from .figures import Figures
from .gradient_sum import GradientSum
from .micro_step_queue import MicroStepQueue


class Window(StrEnum):
    """Whether cells may claim."""

    IDLE = "idle"  # no step
    OPEN = "open"
    CLOSED = "closed"  # the weights are about to change


WINDOW_MOVES: Final[dict[Window, frozenset[Window]]] = {
    Window.IDLE: frozenset({Window.OPEN}),
    Window.OPEN: frozenset({Window.CLOSED, Window.OPEN}),  # open again: after a loss, from nothing
    Window.CLOSED: frozenset({Window.IDLE, Window.OPEN}),
}


class GoneError(Exception):
    """What a cell speaks of is over: an earlier step, or an earlier attempt at this one."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A micro-step that a cell has taken."""

    number: int
    payload: bytes  # see `micro_step_bytes`


@dataclass(frozen=True, slots=True)
class Summed:
    """What a finished step comes to."""

    gradient: Float32Array  # N, of weights for a step of one execution
    executions: int  # E
    figures: Figures


class ElasticStep:
    """One step after the other, each perhaps in several attempts. Every call of a cell names the attempt it is in.

    Whoever calls it from several threads holds a lock.
    """

    def __init__(self, lease_s: float, new_sum: Callable[[], GradientSum]) -> None:
        """`new_sum` makes an empty sum for each attempt."""
        self._lease_s = lease_s
        self._new_sum = new_sum
        self._sum: GradientSum | None = None
        self._queue = MicroStepQueue(lease_s)
        self._payloads: dict[int, bytes] = {}
        self._figures: dict[int, Figures] = {}
        self._executions = 0
        self.window = Window.IDLE
        self.step = -1
        self.attempt = ""

    @property
    def queue(self) -> MicroStepQueue:
        """The attempt's micro-steps."""
        return self._queue

    @property
    def complete(self) -> bool:
        """Whether every gradient of what was offered is in the sum."""
        return len(self._figures) == len(self._queue)

    def open(self, step: int, attempt: str) -> None:
        """Begin an attempt at a step, from nothing; `attempt` is a name that was never used before."""
        self._move(Window.OPEN)
        self._clear()
        self.step, self.attempt = step, attempt
        self._queue = MicroStepQueue(self._lease_s)
        self._sum = self._new_sum()

    def offer(self, number: int, version: int, payload: bytes) -> None:
        """Put a micro-step into the queue."""
        assert self.window is Window.OPEN, "micro-steps are offered to an open step"
        self._queue.offer(number, version)
        self._payloads[number] = payload

    def add_executions(self, count: int) -> None:
        """Count executions with a trained token, of a group that was offered."""
        self._executions += count

    def claim(self, attempt: str, cell: int, now_s: float) -> Claim | None:
        """Give a cell work; None if there is none now.

        Raises:
            GoneError: the attempt is over.
        """
        self._check(attempt)
        number = self._queue.claim(cell, now_s)
        return None if number is None else Claim(number, self._payloads[number])

    def commit(self, attempt: str, number: int, gradient: Float32Array, figures: Figures) -> bool:
        """Add a gradient; False if the micro-step had been done: it is dropped.

        Raises:
            GoneError: the attempt is over.
        """
        self._check(attempt)
        if not self._queue.commit(number):
            return False
        assert self._sum is not None
        self._sum.add(number, gradient)
        self._figures[number] = figures
        del self._payloads[number]
        return True

    def close(self) -> None:
        """Let no cell claim or return any more; all that was offered is done.

        Raises:
            RuntimeError: something is not.
        """
        if not self.complete:
            raise RuntimeError(
                f"of {len(self._queue)} micro-steps {len(self._figures)} are done: the window stays open"
            )
        self._move(Window.CLOSED)

    def total(self) -> Summed:
        """Return the sum of a closed step. It stays until `finish`."""
        assert self.window is Window.CLOSED
        assert self._sum is not None
        figures = sum((self._figures[number] for number in sorted(self._figures)), Figures())
        return Summed(self._sum.total(), self._executions, figures)

    def finish(self) -> None:
        """Forget the step: its update is made."""
        self._move(Window.IDLE)
        self._clear()

    def _check(self, attempt: str) -> None:
        if self.window is not Window.OPEN or attempt != self.attempt:
            raise GoneError(f"attempt {attempt} is over")

    def _move(self, window: Window) -> None:
        if window not in WINDOW_MOVES[self.window]:
            raise RuntimeError(f"a step cannot go from {self.window} to {window}")
        self.window = window

    def _clear(self) -> None:
        if self._sum is not None:
            self._sum.close()
            self._sum = None
        self._payloads.clear()
        self._figures.clear()
        self._executions = 0
