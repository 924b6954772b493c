"""What the journal says of the work in hand: kept up entry by entry, the same after a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gyre import commands as cmd
from gyre import events as ev
from gyre.journal import Entry, Header

from .ports import Assignment
from .tasks import Task, Tasks


class RunBook:
    """Executions by number, groups that may still be trained, timers that will ring, and versions."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.executions: dict[int, Assignment] = {}
        self.groups: dict[int, list[int]] = {}
        self.timers: dict[str, float] = {}  # name -> when it rings
        self.cursor = 0  # place in the data after the last task that was dispatched
        self.version = 0  # updates made
        self.published_version = 0  # the last that every engine took
        self.saved_version = 0  # newest version known to be durable
        self.begun = False
        self.last_s = 0.0
        self._gone: list[int] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.RunStarted: lambda entry: setattr(self, "begun", True),
            ev.RunResumed: lambda entry: setattr(self, "version", entry.version),
            ev.Timer: self._timer,
            ev.UpdateApplied: lambda entry: setattr(self, "version", entry.version),
            ev.CheckpointSaved: lambda entry: setattr(self, "saved_version", entry.version),
            ev.WeightsPublished: lambda entry: setattr(self, "published_version", entry.version),
            cmd.DispatchGroup: self._dispatch_group,
            cmd.AddExecutions: self._add_executions,
            cmd.DropGroup: lambda entry: self._gone.append(entry.group),
            cmd.ReleaseGroup: lambda entry: self._gone.append(entry.group),
            cmd.SetTimer: lambda entry: self.timers.update({entry.name: entry.at_s}),
        }

    def note(self, entry: Header | Entry) -> None:
        """Take the next entry of the journal."""
        if isinstance(entry, Header):
            return
        self.last_s = max(self.last_s, entry.time_s)
        handler = self._handlers.get(type(entry))
        if handler is not None:
            handler(entry)

    def take_gone(self) -> list[tuple[int, list[int]]]:
        """Forget the groups that were dropped or released; return them with their executions."""
        gone = [(group, self.groups.pop(group)) for group in self._gone if group in self.groups]
        self._gone.clear()
        for _, executions in gone:
            for execution in executions:
                del self.executions[execution]
        return gone

    def _timer(self, entry: ev.Timer) -> None:
        self.timers.pop(entry.name, None)

    def _dispatch_group(self, entry: cmd.DispatchGroup) -> None:
        self.groups[entry.group] = []
        self._add(entry.group, entry.version, self._tasks.task(entry.task), entry.executions)
        self.cursor = max(self.cursor, entry.task + 1)

    def _add_executions(self, entry: cmd.AddExecutions) -> None:
        sibling = self.executions[self.groups[entry.group][0]]
        self._add(entry.group, sibling.version, sibling.task, entry.executions)

    def _add(self, group: int, version: int, task: Task, executions: tuple[int, ...]) -> None:
        self.groups[group] += executions
        for number in executions:
            self.executions[number] = Assignment(number, group, version, task)
