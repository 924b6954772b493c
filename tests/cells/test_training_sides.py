"""What a cell's satellite is told in its moves, and what becomes of one that does not obey."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from gyre.backends.cells.satellites import SatelliteLostError
from gyre.backends.cells.training_sides import SatelliteSide
from gyre.errors import InputError


@dataclass
class Scripted:
    """A satellite, told apart by its number; `log` has what happened to all of them, and at the core."""

    number: int
    log: list[str]
    hangs: bool = False
    problem: str = ""
    size: int = 3
    layout: str = "one"

    async def join(self) -> None:
        self.log.append(f"{self.number} joins")

    async def leave(self) -> None:
        if self.problem:
            raise SatelliteLostError(self.problem)
        if self.hangs:
            await asyncio.Event().wait()
        self.log.append(f"{self.number} leaves")

    async def end(self) -> None:
        self.problem = "its trainer's process has ended"
        self.log.append(f"{self.number} is ended")


@dataclass
class Core:
    """What a side needs of the run's trainer."""

    log: list[str]
    address: str = "http://core"
    layout: str = "one"

    async def leave(self, cell: int) -> None:
        self.log.append(f"the core lets {cell} go")

    def check_satellite(self, size: int, layout: str) -> None:
        if layout != self.layout:
            raise InputError(f"{layout} is not the core's")


@dataclass
class Place:
    log: list[str] = field(default_factory=list)
    made: list[Scripted] = field(default_factory=list)
    fails: bool = False

    async def launch(self, cell: int, address: str) -> Scripted:
        assert (cell, address) == (4, "http://core")
        if self.fails:
            raise SatelliteLostError("no memory")
        self.made.append(Scripted(len(self.made), self.log))
        return self.made[-1]

    def side(self, layout: str = "one") -> SatelliteSide:
        return SatelliteSide(self.launch, Core(self.log, layout=layout), 4, leave_s=0.02)  # type: ignore[arg-type]


def run(check: Callable[[Place], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(check(Place()), 20))


def test_one_trainer_lives_through_all_moves() -> None:
    async def check(place: Place) -> None:
        side = place.side()
        await side.start()
        for _ in range(2):
            await side.load()
            await side.offload()
        await side.close()
        once = ["0 joins", "0 leaves", "the core lets 4 go"]
        assert place.log == [*once, *once, "0 is ended"]

    run(check)


def test_one_that_died_is_started_again_when_it_is_needed() -> None:
    async def check(place: Place) -> None:
        side = place.side()
        await side.start()
        place.made[0].problem = "its trainer's process has ended"
        assert side.problem() == "its trainer's process has ended"
        await side.load()
        assert place.log == ["0 is ended", "the core lets 4 go", "1 joins"]
        assert side.problem() == ""
        place.made[1].problem = "its trainer has been silent"
        await side.offload()
        assert place.log[3:] == ["1 is ended", "the core lets 4 go"]
        assert side.problem()

    run(check)


def test_one_that_does_not_leave_in_time_is_ended_and_holds_no_micro_step() -> None:
    async def check(place: Place) -> None:
        side = place.side()
        await side.start()
        await side.load()
        place.made[0].hangs = True
        await side.offload()
        await side.load()
        assert place.log == ["0 joins", "0 is ended", "the core lets 4 go", "the core lets 4 go", "1 joins"]

    run(check)


def test_one_that_obeys_is_not_started_again() -> None:
    """It was the cell's engine that died."""

    async def check(place: Place) -> None:
        side = place.side()
        await side.start()
        await side.reset()
        assert place.log == ["0 leaves", "the core lets 4 go"]

    run(check)


def test_the_core_gets_micro_steps_back_before_another_trainer_is_started() -> None:
    """Starting takes seconds, in which others can do them; and it may fail for long."""

    async def check(place: Place) -> None:
        side = place.side()
        await side.start()
        await side.load()
        place.made[0].problem = "its trainer's process has ended"
        place.fails = True
        with pytest.raises(SatelliteLostError, match="no memory"):
            await side.reset()
        assert place.log == ["0 joins", "0 is ended", "the core lets 4 go"]
        assert side.problem()
        await side.offload()
        place.fails = False
        await side.reset()
        assert side.problem() == ""

    run(check)


def test_a_trainer_of_another_model_is_refused_at_the_start() -> None:
    async def check(place: Place) -> None:
        side = place.side(layout="other")
        with pytest.raises(InputError, match="not the core's"):
            await side.start()
        await side.close()
        assert place.log == ["0 is ended"]

    run(check)
