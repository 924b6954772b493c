"""The cells of a run on this machine, as the driver's port."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gyre import events as ev
from gyre.cluster import CellRole, CellSpec, CellState

from ..publishing.publisher import Publisher
from ..publishing.weights import Weights
from ..run.ports import Reports
from .cell import Cell, CellBrokenError, Transfer

_log = logging.getLogger(__name__)


class WeightSource(Protocol):
    """Where weights come from: the core's trainer."""

    async def newest(self) -> Weights:
        """Return what the core holds, ready to be given to engines."""
        ...

    async def weights(self, version: int) -> Weights:
        """Return the same; an error where the core holds another version."""
        ...


@dataclass(frozen=True, slots=True)
class Watch:
    """How failed cells are found and brought back, in seconds."""

    every_s: float = 0.5
    retry_s: float = 1.0  # before a cell is tried again, doubled with every failure in a row
    retry_most_s: float = 60.0


_WATCH: Final = Watch()


class LocalCells:
    """See `gyre.backends.run.ports.Cells`.

    A cell fails by a step of a move, by an engine that dies or does not take new weights, by a trainer that dies while
    it is needed, or because somebody says so (`fail`). It is told once, and brought back in the background: serving,
    with what is served then. Every step of a move, and every engine's part of a publish, is told with its seconds.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        publisher: Publisher,
        source: WeightSource,
        watch: Watch = _WATCH,
        *,
        rehearse: bool = False,
    ) -> None:
        """Take the cells in their order, core first; none was started.

        With `rehearse` each that may train does so once before the run begins, and comes back: one that cannot give
        its memory away, or take it again, is found before there is work to lose.
        """
        self._cells: Final = {cell.spec.cell: cell for cell in cells}
        self._publisher = publisher
        self._source = source
        self._watch = watch
        self._rehearses = rehearse
        self._report: Reports  # from `start` on
        self._watcher: asyncio.Task[None] | None = None
        self._repairs: dict[int, asyncio.Task[None]] = {}

    async def start(self, reports: Reports) -> tuple[CellSpec, ...]:
        """See `Cells.start`. All engines and trainers start at once; one that does not come up ends the run.

        The core must be up: what it holds is served first.
        """
        self._report = reports
        self._publisher.weights = await self._source.newest()
        async with asyncio.TaskGroup() as group:
            for cell in self._cells.values():
                cell.record = self._tell_transfer
                group.create_task(cell.serving.start())
                if cell.training is not None:
                    group.create_task(cell.training.start())
        if self._rehearses:
            await self._rehearse()
        self._watcher = asyncio.create_task(self._look_regularly())
        return tuple(cell.spec for cell in self._cells.values())

    async def _rehearse(self) -> None:
        async with asyncio.TaskGroup() as group:
            training = [cell for cell in self._cells.values() if cell.training is not None]
            rehearsals = [group.create_task(cell.rehearse()) for cell in training]
        for done in rehearsals:
            for one in done.result():  # before the run's time begins
                self._report(ev.TransferDone(0.0, one.cell, one.step, one.seconds, rehearsed=True))

    async def switch(self, cell: int, role: CellRole, changed: Callable[[CellState], None]) -> None:
        """See `Cells.switch`."""
        one = self._cells[cell]
        try:
            await one.switch(role, changed)
        except asyncio.CancelledError:
            if one.state is CellState.FAILED:  # nobody else will tell
                self._tell_failed(one, "a move was broken off")
            raise
        except CellBrokenError:
            self._repair(one)  # who called tells of it, before this task has its first turn
            raise

    async def publish(self, version: int) -> None:
        """See `Cells.publish`. An engine that does not take the weights fails its cell; the others serve them."""
        begin_s = time.monotonic()
        weights = await self._source.weights(version)
        self._tell_transfer(Transfer(next(iter(self._cells)), "export", time.monotonic() - begin_s))
        published = await self._publisher.publish(weights, self._given)
        for name, reason in published.failed.items():
            _log.warning("version %d was not given to %s: %s", version, name, reason)
        self._look()

    def fail(self, cell: int, reason: str) -> None:
        """Tell that a cell cannot go on: its host is gone, say."""
        one = self._cells[cell]
        if one.fail(reason):
            self._tell_failed(one, reason)

    async def stop(self) -> None:
        """See `Cells.stop`."""
        tasks = [*self._repairs.values(), *filter(None, [self._watcher])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sides = [side for cell in self._cells.values() for side in (cell.serving, cell.training) if side is not None]
        await asyncio.gather(*(side.close() for side in sides), return_exceptions=True)

    async def _look_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._watch.every_s)
            self._look()

    def _look(self) -> None:
        for number, cell in self._cells.items():
            if reason := _problem(cell):
                self.fail(number, reason)

    def _given(self, engine: str, seconds: float) -> None:
        for number, cell in self._cells.items():
            if cell.serving.name == engine:
                self._tell_transfer(Transfer(number, "publish", seconds))

    def _tell_transfer(self, transfer: Transfer) -> None:
        self._report(ev.TransferDone(self._report.now_s, transfer.cell, transfer.step, transfer.seconds))

    def _tell_failed(self, cell: Cell, reason: str) -> None:
        _log.warning("a cell has failed", extra={"cell": cell.spec.cell, "reason": reason})
        self._report(ev.CellFailed(self._report.now_s, cell.spec.cell))
        self._repair(cell)

    def _repair(self, cell: Cell) -> None:
        number = cell.spec.cell
        task = self._repairs[number] = asyncio.create_task(self._bring_back(cell), name=f"repair of cell {number}")
        task.add_done_callback(lambda done: self._repairs.pop(number) if self._repairs.get(number) is done else None)

    async def _bring_back(self, cell: Cell) -> None:
        pause_s = self._watch.retry_s
        while True:
            try:
                await cell.rejoin()
                break
            except CellBrokenError as error:
                _log.warning("a cell cannot be brought back, and is tried again in %.0f s: %s", pause_s, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, self._watch.retry_most_s)
        self._report(ev.CellJoined(self._report.now_s, cell.spec.cell))


def _problem(cell: Cell) -> str:
    """Return what is wrong with the side that a cell needs now.

    While it trains that is not the engine: the move back finds out what became of it; and the other way round.
    """
    if cell.state is CellState.FAILED:
        return ""
    if cell.state is CellState.TRAINING:
        return "" if cell.training is None else cell.training.problem()
    return cell.serving.problem()
