"""Training commands one after the other, and the cells' as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellState

from .desk import Fail, one_line
from .ports import Cells, Reports, Training

_log = logging.getLogger(__name__)


class TrainingLane:
    """Gives the trainer its commands in their order, the next when the one before is done."""

    def __init__(self, training: Training, report: Reports, is_last: Callable[[int], bool]) -> None:
        """`is_last` tells whether a version is the run's last."""
        self._training = training
        self._report = report
        self._is_last = is_last
        self._commands: asyncio.Queue[cmd.Command] = asyncio.Queue()

    def put(self, command: cmd.Command) -> None:
        """Add a command."""
        self._commands.put_nowait(command)

    async def run(self) -> None:
        """Carry out commands for ever. An error of the trainer ends it."""
        while True:
            await self._carry_out(await self._commands.get())

    async def _carry_out(self, command: cmd.Command) -> None:
        training = self._training
        match command:
            case cmd.OpenStep():
                await training.open(command.step)
            case cmd.OfferMicroSteps():
                await training.offer(command)
            case cmd.CloseJoinWindow():
                await training.close(command.step)
            case cmd.ApplyUpdate():
                await self._apply(command.step)

    async def _apply(self, step: int) -> None:
        report, version = self._report, step + 1
        metrics = await self._training.apply(step)
        _log.info("an update is made", extra={"version": version})
        report(ev.UpdateApplied(report.now_s, version, metrics))
        last = self._is_last(version)
        if await self._training.checkpoint(version, last=last):
            report(ev.CheckpointSaved(report.now_s, version))
        elif last:
            raise RuntimeError(f"the trainer did not make version {version} durable, the last of the run")


class CellDesk:
    """Carries out the commands about cells, each by a task of its own. A cell that cannot switch has failed."""

    def __init__(self, cells: Cells, report: Reports, fail: Fail) -> None:
        self._cells = cells
        self._report = report
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()
        self._publishing: asyncio.Task[None] | None = None

    def switch(self, command: cmd.SwitchRole) -> None:
        """Move a cell to another role."""
        self._begin(f"cell {command.cell}", self._switch(command))

    def publish(self, command: cmd.PublishWeights) -> None:
        """Give weights to every serving engine; what is under way of an earlier command is broken off."""
        if self._publishing is not None:
            self._publishing.cancel()
        self._publishing = self._begin(f"publishing version {command.version}", self._publish(command.version))

    async def stop(self) -> None:
        """Break off what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, what: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=what)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._done(what, done))
        return task

    def _done(self, what: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(what, error)

    async def _switch(self, command: cmd.SwitchRole) -> None:
        report, cell = self._report, command.cell

        def changed(state: CellState) -> None:
            report(ev.CellChanged(report.now_s, cell, state))

        try:
            await self._cells.switch(cell, command.role, changed)
        except Exception as error:
            _log.warning("a cell has failed", extra={"cell": cell, "reason": one_line(error)}, exc_info=error)
            report(ev.CellFailed(report.now_s, cell))

    async def _publish(self, version: int) -> None:
        report = self._report
        await self._cells.publish(version)
        _log.info("weights are published", extra={"version": version})
        report(ev.WeightsPublished(report.now_s, version))
