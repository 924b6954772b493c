"""Two cells on this machine: real engines, the core's trainer in this process, and a satellite in one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from engine_faults import asked, logprobs, reply, tokens, versions
from small_server import SMALL_SERVER

from gyre.backends.cells.cell import Cell
from gyre.backends.cells.engine_side import EngineSide
from gyre.backends.cells.local_cells import LocalCells, Watch
from gyre.backends.cells.local_satellite import LocalSatellite, local_satellite
from gyre.backends.cells.server import local_launch
from gyre.backends.cells.trained_weights import TrainedWeights
from gyre.backends.cells.training_sides import CoreSide, SatelliteSide
from gyre.backends.engines.engine import Chunk, Generation
from gyre.backends.engines.generating import Move, generate
from gyre.backends.engines.launching import Server, ServerSettings
from gyre.backends.engines.member import Checks
from gyre.backends.engines.pool import EnginePool
from gyre.backends.engines.sglang import SGLangEngine
from gyre.backends.publishing.control import EngineControl
from gyre.backends.publishing.giving import GiveSettings, give
from gyre.backends.publishing.publisher import Publisher
from gyre.backends.publishing.weights import Weights, on_disk
from gyre.backends.training.cell import TrainingCell
from gyre.backends.training.cell_recipe import CellRecipe
from gyre.backends.training.elastic_training import ElasticTraining
from gyre.backends.training.open_cell import open_cell
from gyre.backends.training.settings import ObjectiveSettings, OptimizerSettings, TrainerSettings
from gyre.cluster import CellKind, CellSpec
from gyre.commands import OfferMicroSteps
from gyre.events import Event, MicroStepClaimed, MicroStepDone, TransferDone
from gyre.trajectory.building import TreeBuilder
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.selection import Selection, select
from gyre.trajectory.store.part import Item

KEY = "key"
GROUP_SIZE = 4
TRAINER = TrainerSettings(
    objective=ObjectiveSettings(kind="ppo"), optimizer=OptimizerSettings(learning_rate=1e-2, epsilon=1e-3)
)


class Heard(list[Event]):
    """Takes what the driver would hear; `told` is what befalls cells."""

    now_s = 0.0

    def __call__(self, event: Event) -> None:
        self.append(event)

    @property
    def told(self) -> list[Event]:
        return [e for e in self if not isinstance(e, (TransferDone, MicroStepClaimed, MicroStepDone))]

    def steps(self, cell: int) -> list[str]:
        """What a cell did in its moves."""
        return [e.step for e in self if isinstance(e, TransferDone) and e.cell == cell]

    def claims(self, step: int, cell: int) -> list[int]:
        claims = [e for e in self if isinstance(e, MicroStepClaimed)]
        return [e.micro_step for e in claims if (e.step, e.cell) == (step, cell)]

    def done(self, step: int, cell: int | None = None) -> list[int]:
        done = [e for e in self if isinstance(e, MicroStepDone)]
        return [e.micro_step for e in done if e.step == step and cell in (None, e.cell)]


@dataclass
class Site:
    """Cells 0 and 1 with an engine and a trainer each, and what was heard of them."""

    pool: EnginePool
    publisher: Publisher
    training: ElasticTraining
    core: TrainingCell
    sides: list[EngineSide]
    satellite: SatelliteSide
    cells: LocalCells
    reports: Heard
    model: Path
    folder: Path
    replies: list[tuple[Generation, list[Chunk]]]  # that every group trains on
    moves: list[Move] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    offered: int = 0
    groups: int = 0

    async def read(self, generation: Generation) -> list[Chunk]:
        """Read a reply of the pool, whole."""
        return [chunk async for chunk in generate(self.pool, generation.request_id, generation)]

    async def _read_along(self, generation: Generation) -> None:
        async with aclosing(generate(self.pool, generation.request_id, generation, on_move=self.moves.append)) as found:
            async for chunk in found:
                self.chunks.append(chunk)

    async def reading(self, generation: Generation, until: int) -> asyncio.Task[None]:
        """Begin to read a reply into `chunks`; return when so many tokens are there."""
        self.chunks.clear()
        self.moves.clear()
        task = asyncio.create_task(self._read_along(generation))
        while len(tokens(self.chunks)) < until and not task.done():
            await asyncio.sleep(0.01)
        return task

    async def reply_of(self, cell: int, new: int, inputs: int) -> list[Chunk]:
        """A reply of this cell's engine and no other."""
        engine = SGLangEngine(self.sides[cell].name)
        try:
            return await reply(engine, asked(new, inputs=inputs, min_new_tokens=new))
        finally:
            await engine.close()

    @property
    def trainer(self) -> LocalSatellite:
        assert isinstance(self.satellite.satellite, LocalSatellite)
        return self.satellite.satellite

    async def open(self, step: int) -> None:
        self.offered = 0
        await self.training.open(step)

    async def offer(self, step: int) -> None:
        """Put another group into the queue, a micro-step for each execution."""
        command = offer_of(self.replies, self.groups, self.offered, step)
        self.groups += 1
        self.offered += len(command.samples)
        await self.training.offer(command)

    async def update(self, step: int) -> dict[str, float]:
        await until(lambda: len(self.reports.done(step)) == self.offered)
        await self.training.close(step)
        return dict(await self.training.apply(step))


async def until(condition: object) -> None:
    while not condition():  # type: ignore[operator]
        await asyncio.sleep(0.01)


def items_of(replies: Sequence[tuple[Generation, list[Chunk]]], group: int) -> list[Item]:
    """A group of executions, each of one call, as engines answered it."""
    items = []
    for at, (generation, chunks) in enumerate(replies):
        name = f"{group * GROUP_SIZE + at}-0"
        builder = TreeBuilder(name, "")
        builder.add(
            CallRecord(
                execution=name,
                call_id="call",
                sequence=0,
                input_ids=generation.input_ids,
                output_ids=np.array(tokens(chunks), np.int32),
                logprobs=np.array(logprobs(chunks), np.float32),
                versions=np.array(versions(chunks), np.int32),
                finish=Finish.LENGTH,
            )
        )
        items.append((ExecutionRecord(name, str(group), score=float(at)), builder.close()))
    return items


def offer_of(replies: Sequence[tuple[Generation, list[Chunk]]], group: int, first: int, step: int) -> OfferMicroSteps:
    lengths = [length for _, tree in items_of(replies, group) for length in select(tree, Selection()).length.tolist()]
    return OfferMicroSteps(0.0, step, group, step, first, tuple((length,) for length in lengths))


@dataclass
class Borrowed:
    """A server that others use too: it is not ended, and gets its own weights back."""

    url: str
    key: str = ""
    ended: bool = False

    async def end(self) -> None:
        """Leave it."""


@asynccontextmanager
async def site(model: Path, shared: Server, folder: Path) -> AsyncIterator[Site]:
    """The engine of cell 0 is a server that runs and holds `model` as version 0; that of cell 1 is started."""
    reports, own = Heard(), ServerSettings(model, folder / "engine.log", cpu=True, flags=SMALL_SERVER)

    async def borrow(weights: Weights) -> Borrowed:
        return Borrowed(shared.url)

    recipe = CellRecipe(folder=model, settings=TRAINER)
    with open_cell(recipe) as core:
        async with EnginePool(checks=Checks(every_s=1.0, retry_s=0.2, retry_most_s=1.0)) as pool:
            replies: list[tuple[Generation, list[Chunk]]] = []

            async def items(group: int) -> list[Item]:
                return items_of(replies, group)

            training = ElasticTraining(core, folder, items, key=KEY)
            publisher = Publisher(pool, on_disk(0, model))
            sides = [EngineSide(launch, publisher) for launch in (borrow, local_launch(own, ready_s=300.0))]
            satellite = SatelliteSide(local_satellite(recipe, key=KEY, log=folder / "satellite.log"), training, 1)
            trainers = [CoreSide(training), satellite]
            kinds = (CellKind.CORE, CellKind.SATELLITE)
            cells = LocalCells(
                [Cell(CellSpec(at, kinds[at], 8, 1), sides[at], trainers[at]) for at in range(2)],
                publisher,
                TrainedWeights(training, folder / "weights", model),
                Watch(every_s=0.2, retry_s=0.2),
            )
            try:
                await training.start(reports)
                await cells.start(reports)
                yield Site(pool, publisher, training, core, sides, satellite, cells, reports, model, folder, replies)
            finally:
                await cells.stop()
                await training.stop()
                await _give_back(shared.url, model)


async def _give_back(url: str, model: Path) -> None:
    control = EngineControl(url)
    await give(control, on_disk(0, model), GiveSettings())
    await control.close()
