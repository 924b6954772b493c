"""What the driver works through: rollouts, evaluations, samples, cells and training.

A port's coroutine stands for one command. What it returns, or raises, becomes an event; cancelling it is how a command
is taken back. All run in the driver's event loop and must not block it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gyre.cluster import CellRole, CellSpec, CellState
from gyre.commands import OfferMicroSteps
from gyre.events import Event
from gyre.outcome import Outcome
from gyre.scoring.evaluation import Evaluation

from .tasks import Task


@dataclass(frozen=True, slots=True)
class Assignment:
    """An execution as it was dispatched."""

    execution: int
    group: int
    version: int  # of the weights that were served at its group's dispatch
    task: Task


@dataclass(frozen=True, slots=True)
class Ended:
    """What an execution came to. It is durable before anybody is told."""

    outcome: Outcome
    calls: str  # its name in the log of calls
    folder: Path | None = None  # what it left; None: nothing
    version_tokens: tuple[tuple[int, int], ...] = ()  # (version, tokens sampled), oldest first
    tool_calls: int = 0  # turns of the policy that ended in tool calls
    steps: int = 0  # model calls, side calls left out
    recorded: int = 0  # calls in the log, all of them


class SamplesLostError(Exception):
    """What an execution sampled is not there any more: its score cannot be used."""


class Reports(Protocol):
    """The driver's ear: for what happens to cells and training without being the answer to a command."""

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        ...

    def __call__(self, event: Event) -> None:
        """Take an event."""
        ...


class Rollouts(Protocol):
    """Runs executions."""

    async def run(self, assignment: Assignment, started: Callable[[], None]) -> Ended:
        """Run an execution to its end; call `started` when its harness runs.

        One that ended before the driver was restarted is not run again: its end is returned. Cancelling stops it.
        Whatever is raised means that it is lost and leaves nothing to score.
        """
        ...

    def ended(self, execution: int) -> Ended | None:
        """Return what an execution came to, None where it has not ended."""
        ...

    def clear(self, executions: Collection[int]) -> None:
        """Forget executions that are not needed any more."""
        ...

    async def recover(self, live: Collection[int]) -> None:
        """Take up an earlier driver's work: end what it left running, forget all but the `live` executions."""
        ...


class Evaluations(Protocol):
    """Evaluates what executions left."""

    async def evaluate(self, assignment: Assignment, ended: Ended, attempt: int, version: int) -> Evaluation:
        """Evaluate; `version` is that of the newest weights. An evaluation that came back once is returned again.

        A failure of the evaluator is an evaluation that is not valid.
        """
        ...


class SampleSink(Protocol):
    """Keeps the samples of scored executions until their group was trained or dropped."""

    async def keep(self, assignment: Assignment, ended: Ended, evaluation: Evaluation) -> tuple[int, ...]:
        """Store an execution's samples; return the lengths in tokens of the paths selected for training.

        They are durable when this returns. A second call for one execution gives the same.

        Raises:
            SamplesLostError: its calls are gone. Any other error ends the run.
        """
        ...

    async def forget(self, group: int) -> None:
        """Delete the samples of a group, where there are any."""
        ...

    async def recover(self, live: Collection[int]) -> None:
        """Take up an earlier driver's work: delete the samples of all but the `live` groups."""
        ...


@dataclass(frozen=True, slots=True)
class Restored:
    """What a trainer holds when it is up."""

    version: int  # updates in the weights that it loaded, 0 for a new run
    groups: tuple[int, ...] = ()  # those of the last of these updates, where it knows
    metrics: tuple[tuple[str, float], ...] = ()  # of that update


class Cells(Protocol):
    """The cells: what they are, the roles they take, and the weights they serve."""

    async def start(self, reports: Reports) -> tuple[CellSpec, ...]:
        """Bring the cells up; return them, core first. What befalls them from now on is reported."""
        ...

    async def switch(self, cell: int, role: CellRole, changed: Callable[[CellState], None]) -> None:
        """Move a cell to a role; call `changed` with each state that it enters. An error means that it failed."""
        ...

    async def publish(self, version: int) -> None:
        """Give weights to every engine that serves; it must not wait for a dead one. An error ends the run."""
        ...

    async def stop(self) -> None:
        """Let everything go, also where `start` has failed or was not called."""
        ...


class Training(Protocol):
    """The trainer. Its coroutines are called one after the other, in the order of the commands.

    Claimed and returned micro-steps are reported. An error ends the run: it can be taken up again from its folder.
    """

    async def start(self, reports: Reports) -> Restored:
        """Load the newest checkpoint, or begin anew; say what that is."""
        ...

    async def open(self, step: int) -> None:
        """Begin to accumulate gradients, from nothing: what was accumulated before is void."""
        ...

    async def offer(self, command: OfferMicroSteps) -> None:
        """Put micro-steps into the queue from which training cells claim."""
        ...

    async def close(self, step: int) -> None:
        """Let no cell join the step any more."""
        ...

    async def apply(self, step: int) -> tuple[tuple[str, float], ...]:
        """Make one update, to version `step + 1`; return its metrics."""
        ...

    async def checkpoint(self, version: int, *, last: bool) -> bool:
        """Make weights, optimizer state and the groups of the update durable, if it is time; return whether it was.

        The last version of a run is always made durable.
        """
        ...

    async def stop(self) -> None:
        """Let everything go, also where `start` has failed or was not called."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """All that a driver works through."""

    rollouts: Rollouts
    evaluations: Evaluations
    samples: SampleSink
    cells: Cells
    training: Training
