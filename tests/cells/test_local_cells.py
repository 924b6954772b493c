"""The driver's port: a failure is told once, and the cell comes back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import pytest

pytest.importorskip("aiohttp", reason="a cell's engine is steered by aiohttp")
pytest.importorskip("orjson", reason="the pool's engines speak JSON by orjson")

from cell_sides import Sides

from gyre.backends.cells.cell import Cell, CellBrokenError
from gyre.backends.cells.local_cells import LocalCells, Watch
from gyre.backends.engines.pool import EnginePool
from gyre.backends.publishing.publisher import Publisher
from gyre.backends.publishing.weights import Weights, on_disk
from gyre.cluster import CellKind, CellRole, CellSpec, CellState
from gyre.events import CellFailed, CellJoined, Event


class Heard(list[Event]):
    now_s = 0.0

    def __call__(self, event: Event) -> None:
        self.append(event)


class NoSource:
    async def weights(self, version: int) -> NoReturn:
        raise AssertionError(version)


class FolderSource:
    async def weights(self, version: int) -> Weights:
        return on_disk(version, Path("nowhere"))


def run(check: Callable[[LocalCells, list[Sides], Heard], Awaitable[None]], source: object = None) -> None:
    """Check something of two cells that have started."""

    async def main() -> None:
        async with EnginePool() as pool:
            sides = [Sides(), Sides()]
            kinds = (CellKind.CORE, CellKind.SATELLITE)
            cells = LocalCells(
                [Cell(CellSpec(at, kinds[at], 4, 1), sides[at], sides[at]) for at in range(2)],
                Publisher(pool, on_disk(0, Path("nowhere"))),
                source or NoSource(),  # type: ignore[arg-type]
                Watch(every_s=0.005, retry_s=0.005, retry_most_s=0.01),
            )
            heard = Heard()
            try:
                assert [spec.cell for spec in await cells.start(heard)] == [0, 1]
                await check(cells, sides, heard)
            finally:
                await cells.stop()

    asyncio.run(asyncio.wait_for(main(), 20))


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_an_engine_that_dies_is_told_once_and_brought_back_after_tries_that_fail() -> None:
    async def check(cells: LocalCells, sides: list[Sides], heard: Heard) -> None:
        sides[1].fails = {"revive"}
        sides[1].trouble = "its engine's process has ended"
        await until(lambda: heard)
        await asyncio.sleep(0.05)  # tries fail meanwhile
        assert heard == [CellFailed(0.0, 1)]
        sides[1].fails = set()
        await until(lambda: len(heard) == 2)
        await asyncio.sleep(0.02)
        assert heard == [CellFailed(0.0, 1), CellJoined(0.0, 1)]

    run(check)


def test_a_move_that_breaks_is_told_by_who_asked_for_it() -> None:
    """Told twice, the same failure would be against the table, and end the run."""

    async def check(cells: LocalCells, sides: list[Sides], heard: Heard) -> None:
        sides[1].hangs = {"load"}
        states: list[CellState] = []
        move = asyncio.create_task(cells.switch(1, CellRole.TRAINING, states.append))
        await until(lambda: CellState.TO_TRAINING in states)
        sides[1].trouble = "its engine's process has ended"
        with pytest.raises(CellBrokenError, match="process has ended"):
            await move
        assert not heard
        await until(lambda: heard)
        assert heard == [CellJoined(0.0, 1)]

    run(check)


def test_a_move_that_is_broken_off_is_told() -> None:
    async def check(cells: LocalCells, sides: list[Sides], heard: Heard) -> None:
        sides[1].hangs = {"load"}
        states: list[CellState] = []
        move = asyncio.create_task(cells.switch(1, CellRole.TRAINING, states.append))
        await until(lambda: CellState.TO_TRAINING in states)
        move.cancel()
        await asyncio.gather(move, return_exceptions=True)
        assert heard == [CellFailed(0.0, 1)]
        await until(lambda: len(heard) == 2)
        assert heard[1] == CellJoined(0.0, 1)

    run(check)


def test_a_dead_trainer_fails_its_cell_while_a_dead_engine_does_not_stop_training() -> None:
    async def check(cells: LocalCells, sides: list[Sides], heard: Heard) -> None:
        await cells.switch(1, CellRole.TRAINING, lambda state: None)
        sides[1].trouble = "its engine's process has ended"
        await asyncio.sleep(0.05)
        assert not heard
        cells.fail(1, "its trainer has died")
        cells.fail(1, "its trainer has died")
        assert heard == [CellFailed(0.0, 1)]
        await until(lambda: len(heard) == 2)
        assert heard[1] == CellJoined(0.0, 1)
        assert (sides[1].serves, sides[1].holds_memory) == (True, False)

    run(check)


def test_an_engine_without_new_weights_is_told_before_the_publish_is() -> None:
    async def check(cells: LocalCells, sides: list[Sides], heard: Heard) -> None:
        sides[0].hangs = {"revive"}
        sides[0].trouble = "its engine did not take new weights"
        await cells.publish(1)
        assert heard == [CellFailed(0.0, 0)]

    run(check, FolderSource())
