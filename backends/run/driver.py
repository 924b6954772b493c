"""The driver of a real run: one inbox of events, a journal ahead of every command, and ports that do the work."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellSpec, Cluster
from gyre.commands import Command
from gyre.errors import InputError
from gyre.events import Event
from gyre.groups import IllegalMoveError

from .clock import RunClock
from .desk import Desk, one_line
from .lanes import CellDesk, TrainingLane
from .ports import Ports, Restored
from .run_journal import RunJournal

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class RunFailedError(Exception):
    """A run ended because something that it cannot do without failed. Its folder is whole: it can be taken up again."""


class RealCluster(Cluster):
    """Drives the one controller of a run through its ports, from where the journal stands to the last step.

    Everything happens in one event loop: events are taken one at a time, in the order of their arrival.
    """

    def __init__(self, journal: RunJournal, ports: Ports) -> None:
        """Take an open journal.

        Raises:
            ValueError: the controller would let go of trained groups before a checkpoint holds their update.
        """
        if not journal.controller.settings.keeps_until_checkpoint:
            raise ValueError("a real run needs ControllerSettings.keeps_until_checkpoint: a restart may train again")
        self._journal = journal
        self._controller = journal.controller
        self._book = journal.book
        self._ports = ports
        self._clock = RunClock(journal.book.last_s)
        self._inbox: asyncio.Queue[Event | None] = asyncio.Queue()
        self._failure: tuple[str, BaseException] | None = None
        self._stopping = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._desk = Desk(ports, self._book, self, self.fail)
        self._cells = CellDesk(ports.cells, self, self.fail)
        self._lane = TrainingLane(ports.training, self, lambda version: version >= self._controller.settings.steps)
        self._background: list[asyncio.Task[None]] = []
        self._clearing: set[asyncio.Task[None]] = set()
        self._commands: dict[type[Command], Callable[[Any], None]] = {
            cmd.DispatchGroup: lambda command: None,  # the book has it
            cmd.AddExecutions: lambda command: None,
            cmd.StartExecution: self._desk.start,
            cmd.CancelExecution: lambda command: self._desk.cancel(command.execution, command.reason),
            cmd.ScoreExecution: self._desk.score,
            cmd.SwitchRole: self._cells.switch,
            cmd.PublishWeights: self._cells.publish,
            cmd.OpenStep: self._lane.put,
            cmd.OfferMicroSteps: self._lane.put,
            cmd.CloseJoinWindow: self._lane.put,
            cmd.ApplyUpdate: self._lane.put,
            cmd.DropGroup: self._clear,
            cmd.ReleaseGroup: self._clear,
            cmd.SetTimer: lambda command: self._set_timer(command.name, command.at_s),
            cmd.StopRun: lambda command: None,  # `complete` says so, once the last weights are durable
        }

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        return self._clock.now_s

    @property
    def complete(self) -> bool:
        """Whether the last step is made, and its weights are durable."""
        return self._journal.complete

    def __call__(self, event: Event) -> None:
        """Take an event; it is handled after those that came before it."""
        self._inbox.put_nowait(event)

    def fail(self, what: str, error: BaseException) -> None:
        """End the run for an error in `what`; the first one counts."""
        if self._failure is None:
            self._failure = what, error
            _log.error("%s failed", what, extra={"reason": one_line(error)}, exc_info=error)
        self._inbox.put_nowait(None)

    def stop(self) -> None:
        """End the run here; it can be taken up again."""
        self._stopping = True
        self._inbox.put_nowait(None)

    async def run(self) -> bool:
        """Drive the run to its end, or until it is stopped; return whether it is complete.

        Raises:
            InputError: the trainer's checkpoint is not of this run, the disk is full, or the policy is at fault.
            RunFailedError: a port failed with what the run cannot do without, or told what cannot be.
        """
        if self.complete:
            return True
        try:
            await self._begin()
            while not (self.complete or self._stopping or self._failure):
                event = await self._inbox.get()
                if event is not None:
                    self.execute(self._take(event))
        finally:
            await self._end()
        if self._failure is not None:
            what, error = self._failure
            if isinstance(error, InputError):
                raise error
            raise RunFailedError(f"{what} failed ({one_line(error)}); the run can be taken up again") from error
        return self.complete

    async def _begin(self) -> None:
        """Bring the ports up, and tell the controller of it."""
        ports, book = self._ports, self._book
        book.take_gone()
        await ports.rollouts.recover(book.executions.keys())
        await ports.samples.recover(book.groups.keys())
        restored = await _brought_up("the trainer", ports.training.start(self))
        specs = await _brought_up("the cells", ports.cells.start(self))
        self._background = [
            asyncio.create_task(self._watched("the journal", self._journal.sync_regularly)),
            asyncio.create_task(self._watched("training", self._lane.run)),
        ]
        self._clock = RunClock(book.last_s)  # the run's time is not spent on bringing cells up
        if book.begun:
            self._resume(restored, specs)
        elif restored.version:
            raise InputError(f"the trainer holds version {restored.version} of another run; give it an empty folder")
        else:
            self.execute(self._take(ev.RunStarted(self.now_s, specs)))

    def _resume(self, restored: Restored, specs: tuple[CellSpec, ...]) -> None:
        """Tell the controller what the trainer holds; it commands again what is open."""
        step = self._controller.step
        if restored.version == self._controller.version + 1:
            if restored.groups and set(restored.groups) != set(step.groups):
                raise InputError(
                    f"the trainer's version {restored.version} was made of other groups than the journal says; "
                    "give the checkpoints of this run"
                )
            # It was made, and the journal does not know yet. What follows from it is commanded again below, but for
            # groups that go: those are told of once.
            following = self._take(ev.UpdateApplied(self.now_s, restored.version, restored.metrics))
            self.execute([command for command in following if isinstance(command, (cmd.DropGroup, cmd.ReleaseGroup))])
        commands = self._take(ev.RunResumed(self.now_s, restored.version, specs))
        _log.info("the run goes on", extra={"version": restored.version})
        for name, at_s in list(self._book.timers.items()):
            self._set_timer(name, at_s)
        self.execute(commands)
        if restored.version > self._book.saved_version:
            self.execute(self._take(ev.CheckpointSaved(self.now_s, restored.version)))

    def _take(self, event: Event) -> list[Command]:
        """Give an event to the controller and the journal; return the commands, which may be carried out now."""
        if event.time_s < self._book.last_s:  # made by a port a moment ago, and overtaken
            event = replace(event, time_s=self._book.last_s)
        try:
            return self._journal.commit(event)
        except InputError:
            raise
        except (IllegalMoveError, ValueError) as error:  # a port told what cannot be; the journal does not hold it
            raise RunFailedError(f"{type(event).__name__}: {error}; the run can be taken up again") from error

    def execute(self, commands: Sequence[Command]) -> None:
        """Carry out commands in the order given."""
        for command in commands:
            self._commands[type(command)](command)

    def _clear(self, command: cmd.DropGroup | cmd.ReleaseGroup) -> None:
        """Let go of what is kept of groups that are not needed any more."""
        for group, executions in self._book.take_gone():
            for execution in executions:
                self._desk.cancel(execution, "its group is gone")
            task = asyncio.create_task(self._watched(f"group {group}", partial(self._forget, group, executions)))
            self._clearing.add(task)
            task.add_done_callback(self._clearing.discard)

    async def _forget(self, group: int, executions: Sequence[int]) -> None:
        """Delete what there is of a group, once nothing writes there any more."""
        await self._desk.ended(executions)
        self._ports.rollouts.clear(executions)
        await self._ports.samples.forget(group)

    def _set_timer(self, name: str, at_s: float) -> None:
        earlier = self._timers.pop(name, None)
        if earlier is not None:
            earlier.cancel()
        delay_s = max(0.0, at_s - self.now_s)
        self._timers[name] = asyncio.get_running_loop().call_later(delay_s, self._ring, name, at_s)

    def _ring(self, name: str, at_s: float) -> None:
        del self._timers[name]
        self(ev.Timer(max(self.now_s, at_s), name))  # the loop's timers may ring a moment early

    async def _watched(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do work in the background; an error of it ends the run."""
        try:
            await work()
        except Exception as error:
            self.fail(what, error)

    async def _end(self) -> None:
        """Stop whatever runs. The journal is closed with its folder."""
        for timer in self._timers.values():
            timer.cancel()
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._clearing, return_exceptions=True)
        for what, stop in (
            ("executions", self._desk.stop),
            ("cells", self._cells.stop),
            ("the trainer", self._ports.training.stop),
            ("the cells", self._ports.cells.stop),
        ):
            try:
                await stop()
            except Exception as error:
                _log.error("%s cannot be stopped", what, exc_info=error)


async def _brought_up(what: str, start: Coroutine[Any, Any, _T]) -> _T:
    try:
        return await start
    except InputError:
        raise
    except Exception as failure:
        error: Exception = failure
        while isinstance(error, ExceptionGroup):  # of what was started at once, the first that failed
            error = error.exceptions[0]
        if isinstance(error, InputError):
            raise error from failure
        raise RunFailedError(f"{what} cannot be brought up: {one_line(error)}") from failure


class Stoppable(Protocol):
    """What can be told to stop."""

    def stop(self) -> None:
        """End here."""
        ...


@contextmanager
def stopped_by_signals(cluster: Stoppable) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM stop a run at the next event; a second one ends the process as it always does.

    Use it within the running event loop.
    """
    loop = asyncio.get_running_loop()
    heard = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        for number in heard:
            loop.remove_signal_handler(number)
        cluster.stop()

    for number in heard:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        with suppress(ValueError):
            for number in heard:
                loop.remove_signal_handler(number)
