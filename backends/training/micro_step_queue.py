"""Which micro-steps of a step wait, which are claimed by whom and until when, and which are done."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class MicroStepState(StrEnum):
    """Where a micro-step is."""

    WAITING = "waiting"
    CLAIMED = "claimed"
    DONE = "done"


MICRO_STEP_MOVES: Final[dict[MicroStepState, frozenset[MicroStepState]]] = {
    # A gradient may come back after its lease ran out: the weights are the same, so it is as good.
    MicroStepState.WAITING: frozenset({MicroStepState.CLAIMED, MicroStepState.DONE}),
    MicroStepState.CLAIMED: frozenset({MicroStepState.WAITING, MicroStepState.DONE}),
    MicroStepState.DONE: frozenset(),
}


@dataclass(slots=True)
class _MicroStep:
    version: int
    state: MicroStepState = MicroStepState.WAITING
    cell: int = -1  # that claimed it last
    expires_s: float = 0.0

    def move(self, state: MicroStepState) -> None:
        assert state in MICRO_STEP_MOVES[self.state], f"a micro-step cannot go from {self.state} to {state}"
        self.state = state


class MicroStepQueue:
    """The micro-steps of one step. It has no clock: times are given, in seconds, and never fall.

    Every micro-step is committed exactly once, whatever cells do: what a cell claims is waiting again when its lease
    has run out or the cell leaves, and of several gradients the first one counts.
    """

    def __init__(self, lease_s: float) -> None:
        """`lease_s` is how long a claim lasts: well above what a micro-step takes, or work is done twice."""
        self._lease_s = lease_s
        self._steps: dict[int, _MicroStep] = {}
        self._waiting: list[tuple[int, int]] = []  # heap of (version, number); entries not waiting any more are stale
        self._claimed: set[int] = set()
        self.committed = 0

    def __len__(self) -> int:
        """Micro-steps offered."""
        return len(self._steps)

    @property
    def all_done(self) -> bool:
        """Whether every micro-step offered is committed."""
        return self.committed == len(self._steps)

    @property
    def waits(self) -> bool:
        """Whether there is something to claim."""
        self._drop_stale()
        return bool(self._waiting)

    @property
    def next_expiry_s(self) -> float | None:
        """When the next lease runs out; None where nothing is claimed. O(claims)."""
        return min((self._steps[number].expires_s for number in self._claimed), default=None)

    def state(self, number: int) -> MicroStepState:
        """Return where a micro-step is; KeyError if it was not offered."""
        return self._steps[number].state

    def offer(self, number: int, version: int) -> None:
        """Add a micro-step; `version` is that of the weights that its group was dispatched with.

        Raises:
            ValueError: it is there already.
        """
        if number in self._steps:
            raise ValueError(f"micro-step {number} was offered before")
        self._steps[number] = _MicroStep(version)
        heapq.heappush(self._waiting, (version, number))

    def claim(self, cell: int, now_s: float) -> int | None:
        """Give a cell the waiting micro-step of the oldest version, the first one of these; None if none waits."""
        self.expire(now_s)
        self._drop_stale()
        if not self._waiting:
            return None
        _, number = heapq.heappop(self._waiting)
        step = self._steps[number]
        step.move(MicroStepState.CLAIMED)
        step.cell, step.expires_s = cell, now_s + self._lease_s
        self._claimed.add(number)
        return number

    def commit(self, number: int) -> bool:
        """Take a micro-step as done; False if it was already, or was never offered: then its gradient is dropped."""
        step = self._steps.get(number)
        if step is None or step.state is MicroStepState.DONE:
            return False
        step.move(MicroStepState.DONE)
        self._claimed.discard(number)
        self.committed += 1
        return True

    def expire(self, now_s: float) -> list[int]:
        """Put back what was claimed and not returned in time; return it."""
        return self._release(lambda step: step.expires_s <= now_s)

    def leave(self, cell: int) -> list[int]:
        """Put back all that a cell has claimed; return it."""
        return self._release(lambda step: step.cell == cell)

    def _release(self, chosen: Callable[[_MicroStep], bool]) -> list[int]:
        released = sorted(number for number in self._claimed if chosen(self._steps[number]))
        for number in released:
            step = self._steps[number]
            step.move(MicroStepState.WAITING)
            self._claimed.discard(number)
            heapq.heappush(self._waiting, (step.version, number))
        return released

    def _drop_stale(self) -> None:
        while self._waiting and self._steps[self._waiting[0][1]].state is not MicroStepState.WAITING:
            heapq.heappop(self._waiting)
