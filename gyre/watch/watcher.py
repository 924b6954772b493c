"""Follows a run by its journal, entry by entry, and says at each update how healthy it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from .. import commands as cmd
from .. import events as ev
from ..cluster import CellState
from ..journal import Entry, Header
from .alert import Alert
from .alert_book import AlertBook
from .figures import COMPLETION, SCORE, TOKENS, TOOL_CALLS, VALID, Flow, StepFigures, check_key
from .rollouts import CANCELLED, LOST, ByGroup, GroupTally, Member, values_of
from .settings import WatchSettings, watch_settings
from .step_figures import step_figures

_MOVING: Final = frozenset({CellState.TO_TRAINING, CellState.TO_SERVING})
_AT_THE_END: Final = frozenset({COMPLETION, TOOL_CALLS, TOKENS, SCORE})  # of a placeholder; other scores come later


@dataclass(frozen=True, slots=True)
class RunHealth:
    """A run's health so far. `rest` is what happened since the last update; all flows sum to what was dispatched."""

    steps: tuple[StepFigures, ...] = ()
    alerts: tuple[Alert, ...] = ()
    rest: Flow = field(default_factory=Flow)
    open_executions: int = 0
    settings: WatchSettings = field(default_factory=WatchSettings)

    @property
    def flow(self) -> Flow:
        """What happened in the whole run."""
        total = self.rest
        for step in self.steps:
            total = total + step.flow
        return total


@dataclass(slots=True)
class _Group:
    version: int
    members: list[int]
    tally: GroupTally | None = None  # once it was trained or dropped; its members are forgotten then


class Watcher:
    """Takes a journal as it is written; holds the executions that may still be trained, and a few numbers a step.

    After `RunResumed` the updates that are made again replace those before. Settings not given are read from the
    header's table `watch`.
    """

    def __init__(self, settings: WatchSettings | None = None) -> None:
        self.steps: list[StepFigures] = []
        self._given = settings
        self._book = AlertBook(settings or WatchSettings())
        self._groups: dict[int, _Group] = {}
        self._members: dict[int, Member] = {}
        self._taken: dict[int, dict[int, None]] = {}  # groups by step, in order
        self._moving: dict[int, float] = {}  # cells on the way to another role, and since when
        self._flow = Flow()
        self._means = ByGroup()
        self._stopped = False
        self._changes: tuple[Alert, ...] = ()
        self._handlers: dict[type, Callable[[Any], None]] = {
            cmd.DispatchGroup: self._dispatch,
            cmd.AddExecutions: self._add_executions,
            cmd.CancelExecution: self._cancel,
            cmd.OpenStep: self._open,
            cmd.OfferMicroSteps: self._offer,
            cmd.DropGroup: self._drop,
            cmd.ReleaseGroup: self._release,
            cmd.StopRun: self._stop,
            ev.ExecutionStarted: self._started,
            ev.ExecutionFinished: self._finished,
            ev.ExecutionScored: self._scored,
            ev.ExecutionLost: self._lost,
            ev.CellChanged: self._cell_changed,
            ev.UpdateApplied: self._update,
            ev.RunResumed: self._resumed,
        }

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """All alerts so far, in the order in which they began."""
        return tuple(self._book.alerts)

    def add(self, entry: Header | Entry) -> tuple[Alert, ...]:
        """Take the next entry; return the alerts that began or ended with it.

        Raises:
            InputError: the header's table `watch` is no `WatchSettings`.
        """
        if isinstance(entry, Header):
            if self._given is None:
                self._book = AlertBook(watch_settings(entry.settings.get("watch"), "journal: watch"))
            return ()
        handler = self._handlers.get(type(entry))
        if handler is None or self._stopped:
            return ()
        self._changes = ()
        handler(entry)
        return self._changes

    def health(self) -> RunHealth:
        """Return the run's health so far."""
        rest = self._flow + Flow(means=self._means.means())
        open_executions = sum(member.outcome is None for member in self._members.values())
        return RunHealth(tuple(self.steps), self.alerts, rest, open_executions, self._book.settings)

    # Rollouts

    def _dispatch(self, entry: cmd.DispatchGroup) -> None:
        if entry.group not in self._groups:
            self._groups[entry.group] = _Group(entry.version, [])
            self._join(entry.group, entry.executions)

    def _add_executions(self, entry: cmd.AddExecutions) -> None:
        if entry.group in self._groups:
            self._join(entry.group, entry.executions)
            self._flow.added += len(entry.executions)

    def _join(self, group: int, executions: tuple[int, ...]) -> None:
        self._groups[group].members += executions
        self._members |= {execution: Member(group) for execution in executions}
        self._flow.dispatched += len(executions)

    def _started(self, entry: ev.ExecutionStarted) -> None:
        member = self._members.get(entry.execution)
        if member is None:
            return
        if member.outcome is not None:  # it was lost, and is tried again
            self._flow.restarted += 1
            self._members[entry.execution] = member = Member(member.group)
        member.started_s = entry.time_s

    def _finished(self, entry: ev.ExecutionFinished) -> None:
        member = self._members.get(entry.execution)
        if member is None or member.outcome is not None:
            return
        member.version_tokens, member.tool_calls = entry.version_tokens, entry.tool_calls
        self._end(entry.execution, member, entry.outcome, entry.time_s)

    def _lost(self, entry: ev.ExecutionLost) -> None:
        member = self._members.get(entry.execution)
        if member is not None and member.outcome is None:
            self._flow.lost[entry.reason] += 1
            self._end(entry.execution, member, LOST, entry.time_s)

    def _cancel(self, entry: cmd.CancelExecution) -> None:
        member = self._members.get(entry.execution)
        if member is not None and member.outcome is None:
            self._flow.cancelled[entry.reason] += 1
            self._end(entry.execution, member, CANCELLED, entry.time_s)

    def _end(self, number: int, member: Member, outcome: str, time_s: float) -> None:
        member.outcome = outcome
        member.seconds = None if member.started_s is None else time_s - member.started_s
        self._flow.outcomes[outcome] += 1
        if member.octave is not None:
            self._flow.offered_octaves[member.octave] += 1
        for key, count, total in values_of(member):
            if key in _AT_THE_END:
                self._means.add(key, member.group, count, total)
        group = self._groups.get(member.group)
        if group is None or group.tally is not None:  # the group went on without it
            del self._members[number]

    def _scored(self, entry: ev.ExecutionScored) -> None:
        if not entry.valid:
            self._flow.failed[entry.reason or "no reason given"] += 1
        member = self._members.get(entry.execution)
        if member is None or member.outcome in (None, LOST, CANCELLED):
            self._flow.late += 1
            return
        member.evaluations += 1
        member.valid, member.score, member.checks = entry.valid, entry.score, entry.checks
        self._means.add(VALID, member.group, 1, float(entry.valid))
        if entry.valid and entry.score is not None:
            self._means.add(SCORE, member.group, 1, entry.score)
            for name, passed in entry.checks:
                self._means.add(check_key(name), member.group, 1, passed)

    # Groups and steps

    def _drop(self, entry: cmd.DropGroup) -> None:
        group = self._groups.get(entry.group)
        if group is None:
            return
        self._flow.dropped[entry.reason] += 1
        if group.tally is None:
            for number in group.members:
                member = self._members[number]
                if member.outcome is None:
                    self._flow.cancelled[f"group dropped: {entry.reason}"] += 1
                    self._end(number, member, CANCELLED, entry.time_s)
            self._flow.dropped_alike += self._summed(group).is_alike
        del self._groups[entry.group]

    def _release(self, entry: cmd.ReleaseGroup) -> None:
        group = self._groups.pop(entry.group, None)
        if group is not None:
            self._summed(group)

    def _summed(self, group: _Group) -> GroupTally:
        """Return the group's figures; those of its executions that ended are not needed any more."""
        if group.tally is None:
            group.tally = GroupTally.of(group.version, (self._members[number] for number in group.members))
            for number in group.members:
                if self._members[number].outcome is not None:
                    del self._members[number]
            group.members.clear()
        return group.tally

    def _open(self, entry: cmd.OpenStep) -> None:
        self._taken[entry.step] = {}

    def _offer(self, entry: cmd.OfferMicroSteps) -> None:
        if entry.group in self._groups:
            self._taken.setdefault(entry.step, {})[entry.group] = None

    def _update(self, entry: ev.UpdateApplied) -> None:
        step = entry.version - 1
        self._rewind(step)
        groups = [self._groups[number] for number in self._taken.pop(step, {}) if number in self._groups]
        flow, self._flow = self._flow + Flow(means=self._means.means()), Flow()
        self._means = ByGroup()
        tallies = [self._summed(group) for group in groups]
        self.steps.append(step_figures(step, entry.time_s, tallies, dict(entry.metrics), flow))
        self._changes = self._book.update(self.steps)

    def _resumed(self, entry: ev.RunResumed) -> None:
        self._moving.clear()
        self._rewind(entry.version)

    def _rewind(self, step: int) -> None:
        """Forget updates from `step` on: they are made again. What happened meanwhile did happen."""
        kept = [figures for figures in self.steps if figures.step < step]
        if len(kept) == len(self.steps):
            return
        for figures in self.steps[len(kept) :]:
            self._flow = figures.flow + self._flow
        self.steps[:] = kept
        self._book = AlertBook.of(self._book.settings, kept)

    def _cell_changed(self, entry: ev.CellChanged) -> None:
        if entry.state in _MOVING:
            self._moving[entry.cell] = entry.time_s
        elif entry.cell in self._moving:
            self._flow.switches += 1
            self._flow.switch_s += entry.time_s - self._moving.pop(entry.cell)

    def _stop(self, entry: cmd.StopRun) -> None:
        self._stopped = True


def health_of(entries: Iterable[Header | Entry], settings: WatchSettings | None = None) -> RunHealth:
    """Return the health of the run that `entries` tell of."""
    watcher = Watcher(settings)
    for entry in entries:
        watcher.add(entry)
    return watcher.health()
