"""The driver's port: a failure is told once, and the cell comes back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="a cell's engine is steered by aiohttp")
pytest.importorskip("orjson", reason="the pool's engines speak JSON by orjson")

from cell_sides import Sides, TrainerOf

from gyre.backends.cells.cell import Cell, CellBrokenError
from gyre.backends.cells.local_cells import LocalCells, Watch
from gyre.backends.engines.pool import EnginePool
from gyre.backends.publishing.publisher import Publisher
from gyre.backends.publishing.weights import Weights, on_disk
from gyre.cluster import CellKind, CellRole, CellSpec, CellState
from gyre.events import CellFailed, CellJoined, Event, TransferDone


class Heard(list[Event]):
    """What was told, but for steps of moves, which are apart."""

    now_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.transfers: list[TransferDone] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, TransferDone):
            self.transfers.append(event)
        else:
            self.append(event)


class FolderSource:
    async def newest(self) -> Weights:
        return await self.weights(7)

    async def weights(self, version: int) -> Weights:
        return on_disk(version, Path("nowhere"))


def run(check: Callable[[LocalCells, list[Sides], Heard], Awaitable[None]]) -> None:
    """Check something of two cells that have started."""

    async def main() -> None:
        async with EnginePool() as pool:
            sides = [Sides(), Sides()]
            kinds = (CellKind.CORE, CellKind.SATELLITE)
            publisher = Publisher(pool, on_disk(0, Path("nowhere")))
            cells = LocalCells(
                [Cell(CellSpec(at, kinds[at], 4, 1), sides[at], TrainerOf(sides[at])) for at in range(2)],
                publisher,
                FolderSource(),
                Watch(every_s=0.005, retry_s=0.005, retry_most_s=0.01),
            )
            heard = Heard()
            try:
                assert [spec.cell for spec in await cells.start(heard)] == [0, 1]
                assert publisher.weights.version == 7, "engines start with what the core holds, also after a restart"
                await check(cells, sides, heard)
            finally:
                await cells.stop()

    asyncio.run(asyncio.wait_for(main(), 20))


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def local_cells(pool: EnginePool, sides: list[Sides], *, rehearse: bool) -> LocalCells:
    kinds = (CellKind.CORE, CellKind.SATELLITE, CellKind.STANDALONE)
    cells = [
        Cell(CellSpec(at, kind, 4, 1), sides[at], None if kind is CellKind.STANDALONE else TrainerOf(sides[at]))
        for at, kind in enumerate(kinds)
    ]
    return LocalCells(cells, Publisher(pool, on_disk(0, Path("nowhere"))), FolderSource(), rehearse=rehearse)


def test_each_cell_that_may_train_does_so_once_before_a_run_and_serves_again() -> None:
    async def main() -> None:
        async with EnginePool() as pool:
            sides, heard = [Sides(), Sides(), Sides()], Heard()
            cells = local_cells(pool, sides, rehearse=True)
            await cells.start(heard)
            await cells.stop()
        steps = ["drain", "release", "load", "offload", "restore", "admit"]
        assert [(one.cell, one.step) for one in heard.transfers] == [(at, step) for at in range(2) for step in steps]
        assert all(one.rehearsed and one.time_s == 0 for one in heard.transfers)
        assert not heard, "nothing else is told: the run has not begun"
        assert all(side.serves and not side.holds_memory for side in sides)
        assert "release" not in sides[2].done

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_cell_that_cannot_move_ends_the_run_before_it_begins() -> None:
    async def main() -> None:
        async with EnginePool() as pool:
            sides = [Sides(), Sides(hangs={"load"}), Sides()]
            sides[0].fails = {"restore"}
            cells = local_cells(pool, sides, rehearse=True)
            with pytest.raises(ExceptionGroup) as raised:
                await cells.start(Heard())
            await cells.stop()
        (error,) = raised.value.exceptions
        assert isinstance(error, CellBrokenError)
        assert str(error) == "cell 0: restore does not work"

    asyncio.run(asyncio.wait_for(main(), 20))


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


@pytest.mark.parametrize("watched", [True, False])
def test_a_dead_trainer_fails_its_cell_while_a_dead_engine_does_not_stop_training(watched: bool) -> None:
    async def check(cells: LocalCells, sides: list[Sides], heard: Heard) -> None:
        sides[1].trainer_trouble = "its trainer's process has ended"  # which nobody needs while the cell serves
        await asyncio.sleep(0.02)
        assert not heard
        sides[1].trainer_trouble = ""
        await cells.switch(1, CellRole.TRAINING, lambda state: None)
        sides[1].trouble = "its engine's process has ended"
        await asyncio.sleep(0.02)
        assert not heard
        if watched:
            sides[1].trainer_trouble = "its trainer's process has ended"
            await until(lambda: heard)
        else:
            cells.fail(1, "its host is gone")
            cells.fail(1, "its host is gone")
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

    run(check)


def test_each_step_of_a_move_is_told_with_its_seconds() -> None:
    async def check(cells: LocalCells, sides: list[Sides], heard: Heard) -> None:
        for role in (CellRole.TRAINING, CellRole.SERVING):
            await cells.switch(1, role, lambda state: None)
        await cells.publish(1)
        steps = [(transfer.cell, transfer.step) for transfer in heard.transfers]
        moves = ("drain", "release", "load", "offload", "restore", "admit")
        assert steps == [*((1, step) for step in moves), (0, "export")]
        assert all(transfer.seconds >= 0 for transfer in heard.transfers)

    run(check)
