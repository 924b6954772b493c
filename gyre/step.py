"""The open step: the groups it took, and how much of their micro-steps is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from .groups import IllegalMoveError


class StepPhase(StrEnum):
    """Where the training side is between two boundaries."""

    IDLE = "idle"  # no step is open
    OPEN = "open"  # gradients accumulate, cells may join
    UPDATING = "updating"  # the join window is closed, the core applies the update
    PUBLISHING = "publishing"  # serving engines take the new weights


STEP_MOVES: Final[dict[StepPhase, frozenset[StepPhase]]] = {
    StepPhase.IDLE: frozenset({StepPhase.OPEN, StepPhase.PUBLISHING}),  # publishing: older weights after a restart
    StepPhase.OPEN: frozenset({StepPhase.UPDATING, StepPhase.IDLE}),  # idle: given up
    StepPhase.UPDATING: frozenset({StepPhase.IDLE, StepPhase.PUBLISHING, StepPhase.OPEN}),
    StepPhase.PUBLISHING: frozenset({StepPhase.IDLE}),
}


def pack(sample_tokens: Iterable[int], budget_tokens: int) -> tuple[tuple[int, ...], ...]:
    """Pack samples (tokens each) into micro-steps of at most `budget_tokens`, in order; return the samples of each.

    A sample longer than the budget is a micro-step of its own.
    """
    packed: list[list[int]] = []
    room = 0
    for tokens in sample_tokens:
        if not packed or tokens > room:
            packed.append([])
            room = budget_tokens
        packed[-1].append(tokens)
        room -= tokens
    return tuple(tuple(samples) for samples in packed)


@dataclass(slots=True)
class Pace:
    """How long micro-steps take, from those that were claimed and returned in this run."""

    seconds: float = 0.0
    count: int = 0

    def add(self, seconds: float) -> None:
        """Count one micro-step."""
        self.seconds += seconds
        self.count += 1

    @property
    def mean_s(self) -> float | None:
        """Mean seconds of a micro-step; None before the first was returned."""
        return self.seconds / self.count if self.count else None


@dataclass(slots=True)
class Step:
    """Training state between two updates. Micro-steps are numbered from 0 within a step."""

    phase: StepPhase = StepPhase.IDLE
    groups: list[int] = field(default_factory=list)
    offered: int = 0
    claims: dict[int, int] = field(default_factory=dict)  # micro-step -> cell that claimed it last
    claimed_s: dict[int, float] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    pace: Pace = field(default_factory=Pace)  # of the whole run

    def move(self, phase: StepPhase) -> None:
        """Enter `phase`; raise IllegalMoveError where the table does not allow it."""
        if phase not in STEP_MOVES[self.phase]:
            raise IllegalMoveError(f"training cannot go from {self.phase} to {phase}")
        self.phase = phase

    def clear(self) -> None:
        """Forget all groups and micro-steps."""
        self.groups.clear()
        self.restart()

    def give_up(self) -> None:
        """Forget a step, however far it has come: the weights that it builds on are gone."""
        if self.phase is StepPhase.UPDATING:
            self.move(StepPhase.OPEN)
        if self.phase is not StepPhase.IDLE:
            self.move(StepPhase.IDLE)
        self.clear()

    def restart(self) -> None:
        """Forget what was offered and done, keep the groups: their gradients were lost with the core."""
        self.offered = 0
        self.claims.clear()
        self.claimed_s.clear()
        self.done.clear()

    def claim(self, micro_step: int, cell: int, time_s: float) -> None:
        """Record that a cell took a micro-step; raise IllegalMoveError where none was offered of this number."""
        self._check_offered(micro_step)
        self.claims[micro_step] = cell
        self.claimed_s[micro_step] = time_s

    def finish(self, micro_step: int, cell: int, time_s: float) -> None:
        """Record that a cell returned a micro-step's gradient; raise IllegalMoveError where none was offered."""
        self._check_offered(micro_step)
        self.claims[micro_step] = cell
        self.done.add(micro_step)
        if micro_step in self.claimed_s:
            self.pace.add(time_s - self.claimed_s.pop(micro_step))

    def _check_offered(self, micro_step: int) -> None:
        if not 0 <= micro_step < self.offered:
            raise IllegalMoveError(f"micro-step {micro_step} is none of the {self.offered} that were offered")

    def release(self, cell: int) -> None:
        """Put what a cell claimed and did not return into the queue again."""
        self.claims = {step: owner for step, owner in self.claims.items() if owner != cell or step in self.done}

    @property
    def unclaimed(self) -> int:
        """Micro-steps in the queue that no cell has taken."""
        return self.offered - len(self.claims)

    @property
    def all_done(self) -> bool:
        """Whether every micro-step offered so far was returned."""
        return len(self.done) == self.offered
