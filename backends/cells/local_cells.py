"""The cells of a run on this machine, as the driver's port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gyre import events as ev
from gyre.cluster import CellRole, CellSpec, CellState

from ..publishing.publisher import Publisher
from ..publishing.weights import Weights
from ..run.ports import Reports
from .cell import Cell, CellBrokenError

_log = logging.getLogger(__name__)


class WeightSource(Protocol):
    """Where weights come from: the core's trainer."""

    async def weights(self, version: int) -> Weights:
        """Return weights that the core holds, ready to be given to engines."""
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

    A cell fails by a step of a move, by an engine that dies or does not take new weights, or because its trainer's
    owner says so (`fail`). It is told once, and brought back in the background: serving, with what is served then.
    """

    def __init__(
        self, cells: Sequence[Cell], publisher: Publisher, source: WeightSource, watch: Watch = _WATCH
    ) -> None:
        """Take the cells in their order, core first; none was started."""
        self._cells: Final = {cell.spec.cell: cell for cell in cells}
        self._publisher = publisher
        self._source = source
        self._watch = watch
        self._report: Reports | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._repairs: dict[int, asyncio.Task[None]] = {}

    async def start(self, reports: Reports) -> tuple[CellSpec, ...]:
        """See `Cells.start`. All engines start at once; one that does not come up ends the run."""
        self._report = reports
        async with asyncio.TaskGroup() as group:
            for cell in self._cells.values():
                group.create_task(cell.serving.start())
        self._watcher = asyncio.create_task(self._look_regularly())
        return tuple(cell.spec for cell in self._cells.values())

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
        published = await self._publisher.publish(await self._source.weights(version))
        for name, reason in published.failed.items():
            _log.warning("version %d was not given to %s: %s", version, name, reason)
        self._look()

    def fail(self, cell: int, reason: str) -> None:
        """Tell that a cell cannot go on: its trainer has died, say."""
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
            # While a cell trains its engine is not needed: the move back finds out what became of it.
            if cell.state not in (CellState.FAILED, CellState.TRAINING) and (reason := cell.serving.problem()):
                self.fail(number, reason)

    def _tell_failed(self, cell: Cell, reason: str) -> None:
        assert self._report is not None
        _log.warning("a cell has failed", extra={"cell": cell.spec.cell, "reason": reason})
        self._report(ev.CellFailed(self._report.now_s, cell.spec.cell))
        self._repair(cell)

    def _repair(self, cell: Cell) -> None:
        number = cell.spec.cell
        task = self._repairs[number] = asyncio.create_task(self._bring_back(cell), name=f"repair of cell {number}")
        task.add_done_callback(lambda done: self._repairs.pop(number) if self._repairs.get(number) is done else None)

    async def _bring_back(self, cell: Cell) -> None:
        assert self._report is not None
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
