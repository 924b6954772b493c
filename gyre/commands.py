"""What the controller asks of a cluster. Every command is a frozen dataclass with a time (seconds) and a JSON form."""

from __future__ import annotations

from dataclasses import dataclass

from .cluster import CellRole


@dataclass(frozen=True, slots=True)
class Command:
    """Base of all commands; `time_s` is the time of the event that caused it."""

    time_s: float


@dataclass(frozen=True, slots=True)
class DispatchGroup(Command):
    """Give a group of executions to the cluster; `StartExecution` starts them. `version` is served at dispatch.

    `task` is the place of the group's task in the data, from 0; all executions of a group have the same task.
    """

    group: int
    version: int
    executions: tuple[int, ...]
    task: int = 0


@dataclass(frozen=True, slots=True)
class AddExecutions(Command):
    """Add executions to a group that lost some; `StartExecution` starts them."""

    group: int
    executions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartExecution(Command):
    """Set up and run one dispatched execution."""

    execution: int


@dataclass(frozen=True, slots=True)
class CancelExecution(Command):
    """Stop an execution that is not needed any more."""

    execution: int
    reason: str


@dataclass(frozen=True, slots=True)
class ScoreExecution(Command):
    """Evaluate what a finished execution left; `attempt` counts from 0."""

    execution: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SwitchRole(Command):
    """Move a cell to another role; requests in flight go on elsewhere."""

    cell: int
    role: CellRole


@dataclass(frozen=True, slots=True)
class OpenStep(Command):
    """Begin to accumulate gradients for the update that makes version `step + 1`."""

    step: int


@dataclass(frozen=True, slots=True)
class OfferMicroSteps(Command):
    """Put one group's micro-steps into the queue; `samples[i]` are the lengths in tokens of micro-step `first + i`.

    Training cells claim the oldest `version` first (the version at the group's dispatch).
    """

    step: int
    group: int
    version: int
    first: int
    samples: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens of each micro-step."""
        return tuple(sum(micro_step) for micro_step in self.samples)


@dataclass(frozen=True, slots=True)
class CloseJoinWindow(Command):
    """No cell may join the step any more: its snapshot is about to change."""

    step: int


@dataclass(frozen=True, slots=True)
class ApplyUpdate(Command):
    """Sum the gradients at the core and make one optimizer update."""

    step: int


@dataclass(frozen=True, slots=True)
class PublishWeights(Command):
    """Give weights `version` to every serving engine."""

    version: int


@dataclass(frozen=True, slots=True)
class DropGroup(Command):
    """A group will never be trained; the cluster may forget it and its samples."""

    group: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseGroup(Command):
    """A group was trained and is not needed any more, not even after a restart; its samples may be deleted."""

    group: int


@dataclass(frozen=True, slots=True)
class SetTimer(Command):
    """Ring `Timer(name)` at `at_s`."""

    name: str
    at_s: float


@dataclass(frozen=True, slots=True)
class StopRun(Command):
    """The last step is done."""

    version: int
