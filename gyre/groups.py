"""Groups of executions: their life as an explicit state machine, and what is counted of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    """Where a group is between dispatch and the update that consumed it."""

    DISPATCHED = "dispatched"  # none of its executions runs yet
    RUNNING = "running"
    SCORING = "scoring"  # all executions ended, an evaluation is missing
    READY = "ready"  # every member ended and holds a valid evaluation, or was dropped
    TRAINING = "training"  # taken by the open step
    CONSUMED = "consumed"
    DROPPED = "dropped"


GROUP_MOVES: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.DISPATCHED: frozenset({GroupState.RUNNING, GroupState.DROPPED}),
    GroupState.RUNNING: frozenset({GroupState.SCORING, GroupState.READY, GroupState.DROPPED}),
    GroupState.SCORING: frozenset({GroupState.RUNNING, GroupState.READY, GroupState.DROPPED}),  # running: members added
    GroupState.READY: frozenset({GroupState.TRAINING, GroupState.DROPPED, GroupState.CONSUMED}),  # consumed: long ago
    GroupState.TRAINING: frozenset({GroupState.CONSUMED, GroupState.READY}),  # ready: its step was given up
    GroupState.CONSUMED: frozenset({GroupState.READY}),  # to be trained again: by plan, or since an update was lost
    GroupState.DROPPED: frozenset(),
}


class ExecutionState(StrEnum):
    """Where an execution is between dispatch and its score."""

    QUEUED = "queued"
    RUNNING = "running"
    SCORING = "scoring"
    SCORED = "scored"
    DROPPED = "dropped"


EXECUTION_MOVES: Final[dict[ExecutionState, frozenset[ExecutionState]]] = {
    ExecutionState.QUEUED: frozenset({ExecutionState.RUNNING, ExecutionState.DROPPED}),
    ExecutionState.RUNNING: frozenset({ExecutionState.SCORING, ExecutionState.SCORED, ExecutionState.DROPPED}),
    ExecutionState.SCORING: frozenset({ExecutionState.SCORED, ExecutionState.DROPPED}),
    ExecutionState.SCORED: frozenset(),
    ExecutionState.DROPPED: frozenset(),
}


class IllegalMoveError(RuntimeError):
    """An event asks for a move that its state machine does not allow."""


@dataclass(slots=True)
class Execution:
    """One member of a group."""

    execution: int
    group: int
    state: ExecutionState = ExecutionState.QUEUED
    started_s: float | None = None
    attempt: int = 0  # evaluation that is awaited, from 0
    score: float | None = None
    sample_tokens: tuple[int, ...] = ()
    version_tokens: tuple[tuple[int, int], ...] = ()

    def move(self, state: ExecutionState) -> None:
        """Enter `state`; raise IllegalMoveError where the table does not allow it."""
        if state not in EXECUTION_MOVES[self.state]:
            raise IllegalMoveError(f"execution {self.execution} cannot go from {self.state} to {state}")
        self.state = state


@dataclass(slots=True)
class Group:
    """Executions of one task, dispatched together at a weight version; the unit that a step takes."""

    group: int
    version: int
    dispatched_s: float
    members: list[Execution]
    task: int = 0
    state: GroupState = GroupState.DISPATCHED
    ready_s: float | None = None
    replaced: int = 0  # members that were added for lost ones
    scored_members: int = 0  # that hold a valid evaluation
    open_members: int = field(init=False)  # executions that have not ended
    unscored_members: int = field(init=False)  # executions that are neither scored nor dropped
    trained: list[int] = field(default_factory=list)  # versions made by the updates that it was part of

    def __post_init__(self) -> None:
        self.open_members = self.unscored_members = len(self.members)

    def move(self, state: GroupState) -> None:
        """Enter `state`; raise IllegalMoveError where the table does not allow it."""
        if state not in GROUP_MOVES[self.state]:
            raise IllegalMoveError(f"group {self.group} cannot go from {self.state} to {state}")
        self.state = state

    def add(self, members: Iterable[Execution]) -> None:
        """Add members that are queued; a group of which all had ended runs again."""
        before = len(self.members)
        self.members.extend(members)
        added = len(self.members) - before
        self.replaced += added
        self.open_members += added
        self.unscored_members += added
        if self.state is GroupState.SCORING:
            self.move(GroupState.RUNNING)

    @property
    def scored(self) -> list[Execution]:
        """Members that hold a valid evaluation."""
        return [member for member in self.members if member.state is ExecutionState.SCORED]

    @property
    def equal_scores(self) -> bool:
        """Whether all valid scores are known and the same, so that no member has an advantage over another."""
        scores = {member.score for member in self.scored}
        return len(scores) == 1 and None not in scores

    @property
    def sample_tokens(self) -> tuple[int, ...]:
        """Lengths in tokens of all paths selected for training, member by member."""
        return tuple(tokens for member in self.members for tokens in member.sample_tokens)
