"""What a journal says of a run as a whole: its cells, updates and groups, and what became of each execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ... import commands as cmd
from ... import events as ev
from ...cluster import CellKind, CellSpec
from ...journal import Entry, Header
from ...outcome import Outcome


@dataclass(slots=True)
class RunExecution:
    """One execution; times in seconds since the run began, None where it did not come to that."""

    number: int
    group: int
    asked_s: float | None = None  # its start was commanded
    begun_s: float | None = None  # its harness ran
    ended_s: float | None = None
    outcome: Outcome | None = None
    scored_s: float | None = None  # its last evaluation came back
    valid: bool = False  # it has a score
    score: float | None = None
    sample_tokens: tuple[int, ...] = ()
    sampled_tokens: int = 0
    lost: str = ""  # why it left nothing to score
    cancelled: str = ""  # why it was stopped


@dataclass(slots=True)
class RunGroup:
    """One group, in the order of dispatch."""

    number: int
    task: int  # place in the data
    executions: list[int]
    step: int | None = None  # that trained it
    dropped: str = ""  # why it never was


@dataclass(slots=True)
class RunHistory:
    """A run's journal, read once. Build it with `of`."""

    settings: dict[str, Any] = field(default_factory=dict)
    cells: tuple[CellSpec, ...] = ()
    begun_s: float = 0.0  # the cells were up: what comes before is the start of engines
    last_s: float = 0.0
    updates_s: dict[int, float] = field(default_factory=dict)  # by version, when it was last made
    groups: dict[int, RunGroup] = field(default_factory=dict)
    executions: dict[int, RunExecution] = field(default_factory=dict)
    resumed: int = 0  # times that the run was taken up again
    stopped: bool = False  # it came to its last step

    @classmethod
    def of(cls, entries: Iterable[Header | Entry]) -> RunHistory:
        """Read a journal."""
        history = cls()
        handlers = _handlers(history)
        for entry in entries:
            if isinstance(entry, Header):
                history.settings = entry.settings
                continue
            history.last_s = max(history.last_s, entry.time_s)
            handler = handlers.get(type(entry))
            if handler is not None:
                handler(entry)
        return history

    @property
    def wall_s(self) -> float:
        """Seconds from when the cells were up to the last update, 0 where there was none."""
        return max(self.updates_s.values(), default=self.begun_s) - self.begun_s

    @property
    def step_s(self) -> list[float]:
        """Seconds of each update since the one before, in order."""
        times = [self.begun_s, *(self.updates_s[version] for version in sorted(self.updates_s))]
        return [after - before for before, after in pairwise(times)]

    @property
    def elastic_cells(self) -> int:
        """Cells that may train."""
        return sum(cell.kind is not CellKind.STANDALONE for cell in self.cells)

    @property
    def group_size(self) -> int:
        """N: most groups have so many members. Groups that lost some may have got more."""
        return _most_common([len(group.executions) for group in self.groups.values()])

    @property
    def groups_per_step(self) -> int:
        """B: most steps trained so many groups."""
        steps: dict[int, int] = {}
        for group in self.groups.values():
            if group.step is not None:
                steps[group.step] = steps.get(group.step, 0) + 1
        return _most_common(list(steps.values()))


def _most_common(values: list[int]) -> int:
    return max(sorted(set(values)), key=values.count, default=1)


def _handlers(history: RunHistory) -> dict[type, Callable[[Any], None]]:
    executions, groups = history.executions, history.groups

    def started(entry: ev.RunStarted) -> None:
        history.cells, history.begun_s = entry.cells, entry.time_s

    def resumed(entry: ev.RunResumed) -> None:
        history.resumed += 1

    def dispatched(entry: cmd.DispatchGroup) -> None:
        groups[entry.group] = RunGroup(entry.group, entry.task, list(entry.executions))
        executions.update((number, RunExecution(number, entry.group)) for number in entry.executions)

    def added(entry: cmd.AddExecutions) -> None:
        groups[entry.group].executions += entry.executions
        executions.update((number, RunExecution(number, entry.group)) for number in entry.executions)

    def asked(entry: cmd.StartExecution) -> None:  # again after a restart of the run: the later one counts
        executions[entry.execution] = RunExecution(entry.execution, executions[entry.execution].group, entry.time_s)

    def begun(entry: ev.ExecutionStarted) -> None:
        executions[entry.execution].begun_s = entry.time_s

    def finished(entry: ev.ExecutionFinished) -> None:
        execution = executions[entry.execution]
        execution.ended_s, execution.outcome = entry.time_s, Outcome(entry.outcome)
        execution.sampled_tokens = sum(tokens for _, tokens in entry.version_tokens)

    def scored(entry: ev.ExecutionScored) -> None:
        execution = executions[entry.execution]
        execution.scored_s, execution.valid = entry.time_s, entry.valid
        execution.score, execution.sample_tokens = entry.score, entry.sample_tokens

    def lost(entry: ev.ExecutionLost) -> None:
        executions[entry.execution].lost = entry.reason or "unknown"

    def cancelled(entry: cmd.CancelExecution) -> None:
        executions[entry.execution].cancelled = entry.reason or "unknown"

    def offered(entry: cmd.OfferMicroSteps) -> None:
        groups[entry.group].step = entry.step

    def dropped(entry: cmd.DropGroup) -> None:
        groups[entry.group].dropped = entry.reason or "unknown"

    def updated(entry: ev.UpdateApplied) -> None:
        history.updates_s[entry.version] = entry.time_s

    def stopped(entry: cmd.StopRun) -> None:
        history.stopped = True

    return {
        ev.RunStarted: started,
        ev.RunResumed: resumed,
        ev.ExecutionStarted: begun,
        ev.ExecutionFinished: finished,
        ev.ExecutionScored: scored,
        ev.ExecutionLost: lost,
        ev.UpdateApplied: updated,
        cmd.DispatchGroup: dispatched,
        cmd.AddExecutions: added,
        cmd.StartExecution: asked,
        cmd.CancelExecution: cancelled,
        cmd.OfferMicroSteps: offered,
        cmd.DropGroup: dropped,
        cmd.StopRun: stopped,
    }
