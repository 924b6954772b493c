"""Two real engines in cells: weights published under a reply, a move in the middle of one, an engine that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("sglang", reason="a real engine needs SGLang")
torch = pytest.importorskip("torch", reason="weights are handed over as tensors")
transformers = pytest.importorskip("transformers", reason="log-probs are computed again with transformers")
from engine_faults import asked, reply, tokens, versions  # noqa: E402
from small_server import SMALL_SERVER  # noqa: E402

from gyre.backends.cells.cell import Cell, Transfer  # noqa: E402
from gyre.backends.cells.engine_side import EngineSide  # noqa: E402
from gyre.backends.cells.local_cells import LocalCells, Watch  # noqa: E402
from gyre.backends.cells.server import LocalServer, local_launch  # noqa: E402
from gyre.backends.engines.engine import Chunk, Generation  # noqa: E402
from gyre.backends.engines.generating import Move, generate  # noqa: E402
from gyre.backends.engines.launching import ServerSettings  # noqa: E402
from gyre.backends.engines.member import Checks, MemberState  # noqa: E402
from gyre.backends.engines.pool import EnginePool  # noqa: E402
from gyre.backends.engines.sglang import SGLangEngine  # noqa: E402
from gyre.backends.publishing.from_tensors import FromTensors  # noqa: E402
from gyre.backends.publishing.publisher import Publisher  # noqa: E402
from gyre.backends.publishing.weights import Weights, on_disk  # noqa: E402
from gyre.cluster import CellKind, CellRole, CellSpec, CellState  # noqa: E402
from gyre.events import CellFailed, CellJoined, Event  # noqa: E402
from gyre.trajectory.call import Finish  # noqa: E402

CHECKS = Checks(every_s=1.0, retry_s=0.2, retry_most_s=1.0)
NEW = 600


class Idle:
    """A trainer that has nothing to do."""

    async def load(self) -> None: ...

    async def offload(self) -> None: ...

    async def reset(self) -> None: ...

    async def close(self) -> None: ...


class Heard(list[Event]):
    """Takes what the driver would hear."""

    now_s = 0.0

    def __call__(self, event: Event) -> None:
        self.append(event)


@dataclass
class Site:
    """Cells 0 and 1 with an engine each, and what was heard of them."""

    pool: EnginePool
    sides: list[EngineSide]
    cells: LocalCells
    reports: Heard
    transfers: list[Transfer]
    moves: list[Move] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)

    async def read(self, generation: Generation) -> None:
        """Read a reply into `chunks`."""
        async with aclosing(generate(self.pool, "x", generation, on_move=self.moves.append)) as stream:
            async for chunk in stream:
                self.chunks.append(chunk)

    async def reading(self, generation: Generation, until: int) -> asyncio.Task[None]:
        """Begin to read a reply; return when so many tokens are there."""
        self.chunks.clear()
        self.moves.clear()
        task = asyncio.create_task(self.read(generation))
        while len(tokens(self.chunks)) < until and not task.done():
            await asyncio.sleep(0.01)
        return task

    async def reply_of(self, side: EngineSide, inputs: int) -> list[Chunk]:
        """A reply of this engine and no other."""
        engine = SGLangEngine(side.name)
        try:
            return await reply(engine, asked(NEW, inputs=inputs, min_new_tokens=NEW))
        finally:
            await engine.close()

    def busy(self) -> int:
        """The cell whose engine runs a request."""
        return next(at for at, side in enumerate(self.sides) if self.pool.load(side.name)[0])


@dataclass
class Source:
    """Has version 1 of the other weights."""

    of_one: Weights

    async def weights(self, version: int) -> Weights:
        assert version == 1
        return self.of_one


@asynccontextmanager
async def site(first: Path, second: Weights, logs: Path) -> AsyncIterator[Site]:
    async with EnginePool(checks=CHECKS) as pool:
        publisher = Publisher(pool, on_disk(0, first))
        launches = [
            local_launch(ServerSettings(first, logs / f"cell{cell}.log", cpu=True, flags=SMALL_SERVER), ready_s=300.0)
            for cell in range(2)
        ]
        sides = [EngineSide(launch, publisher) for launch in launches]
        transfers: list[Transfer] = []
        kinds = (CellKind.CORE, CellKind.SATELLITE)
        cells = LocalCells(
            [Cell(CellSpec(at, kinds[at], 8, 1), sides[at], Idle(), transfers.append) for at in range(2)],
            publisher,
            Source(second),
            Watch(every_s=0.2, retry_s=0.2),
        )
        reports = Heard()
        try:
            await cells.start(reports)
            yield Site(pool, sides, cells, reports, transfers)
        finally:
            await cells.stop()


def whole(chunks: list[Chunk]) -> None:
    assert len(tokens(chunks)) == NEW
    assert [chunk.finish for chunk in chunks if chunk.finish is not None] == [Finish.LENGTH]


def tensors_of(folder: Path) -> FromTensors:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return FromTensors(model.state_dict())


async def published_under_a_reply(at: Site, recomputed: Callable[..., float]) -> None:
    generation = asked(NEW, request_id="published", inputs=40, min_new_tokens=NEW)
    for side in at.sides:  # both have KV of the old weights for what is asked later
        assert set(versions(await at.reply_of(side, 40))) == {0}
    reading = await at.reading(generation, 100)
    await at.cells.publish(1)
    await reading
    whole(at.chunks)
    assert set(versions(at.chunks)) == {0, 1}
    assert versions(at.chunks) == sorted(versions(at.chunks))
    assert not at.moves
    assert recomputed(generation, at.chunks) < 1e-4
    for side in at.sides:  # each engine, through its own door
        chunks = await at.reply_of(side, 40)
        assert set(versions(chunks)) == {1}
        assert recomputed(generation, chunks) < 1e-4


async def moved_in_a_reply(at: Site, recomputed: Callable[..., float]) -> None:
    generation = asked(NEW, request_id="moved", inputs=50, min_new_tokens=NEW)
    reading = await at.reading(generation, 80)
    cell, states = at.busy(), list[CellState]()
    at.transfers.clear()
    await at.cells.switch(cell, CellRole.TRAINING, states.append)
    assert at.pool.members()[at.sides[cell].name] is MemberState.DRAINED
    await reading
    whole(at.chunks)
    assert len(at.moves) == 1
    assert set(versions(at.chunks)) == {1}
    assert recomputed(generation, at.chunks) < 1e-4
    await at.cells.switch(cell, CellRole.SERVING, states.append)
    assert states == ["draining", "to_training", "training", "to_serving", "serving"]
    assert [step.step for step in at.transfers] == ["drain", "release", "load", "offload", "restore", "admit"]
    while at.pool.members()[at.sides[cell].name] is not MemberState.SERVING:
        await asyncio.sleep(0.05)
    assert not at.reports


async def killed_in_a_reply(at: Site, recomputed: Callable[..., float]) -> None:
    generation = asked(NEW, request_id="killed", inputs=60, min_new_tokens=NEW)
    reading = await at.reading(generation, 80)
    cell = at.busy()
    server = at.sides[cell].server
    assert isinstance(server, LocalServer)
    os.killpg(server.pid, signal.SIGKILL)
    await reading
    whole(at.chunks)
    assert recomputed(generation, at.chunks) < 1e-4
    while len(at.reports) < 2:
        await asyncio.sleep(0.1)
    assert at.reports == [CellFailed(0.0, cell), CellJoined(0.0, cell)]
    chunks = await at.reply_of(at.sides[cell], 60)
    assert set(versions(chunks)) == {1}  # what was published, not what it first served
    assert recomputed(generation, chunks) < 1e-4


def test_replies_outlive_publishing_moves_and_a_killed_engine(
    tiny_model: Path, other_tiny_model: Path, recomputed: Callable[..., float], tmp_path: Path
) -> None:
    """No reply is broken, and each token's log-prob is that of the version which it is said to have.

    Nothing in flight is aborted by a publish: miles#2372, miles#2589. No KV of old weights is used: verl#6373.
    """

    async def run() -> None:
        second = Weights(1, other_tiny_model, tensors_of(other_tiny_model))
        async with site(tiny_model, second, tmp_path) as at:
            await published_under_a_reply(at, recomputed)
            await moved_in_a_reply(at, recomputed)
            await killed_in_a_reply(at, recomputed)

    asyncio.run(asyncio.wait_for(run(), 500))
