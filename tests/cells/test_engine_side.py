"""The serving side of a cell against a scripted server: what an engine that starts again begins with."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="publishing speaks HTTP to engines by aiohttp")
pytest.importorskip("orjson", reason="the pool's engines speak JSON by orjson")

from steered_sglang import SteeredSglang

from gyre.backends.cells.engine_side import EngineSide
from gyre.backends.engines.pool import EnginePool
from gyre.backends.publishing.publisher import Publisher
from gyre.backends.publishing.weights import Weights, on_disk

FIRST = on_disk(0, Path("the-model"))


class Scripted:
    """A server that begins with weights, as a process would."""

    key = ""

    def __init__(self, weights: Weights) -> None:
        self.sglang = SteeredSglang(version=str(weights.version))
        self.ended = False

    @property
    def url(self) -> str:
        return self.sglang.url

    async def end(self) -> None:
        self.ended = True
        await self.sglang.__aexit__()


def test_an_engine_that_starts_again_loads_a_folder_that_stays_and_is_given_what_is_served() -> None:
    """Folders of versions go while steps go on: an engine that took long to start would find its own gone."""
    servers: list[Scripted] = []
    folders: list[Path] = []

    async def launch(weights: Weights) -> Scripted:
        folders.append(weights.folder)
        servers.append(Scripted(weights))
        await servers[-1].sglang.__aenter__()
        return servers[-1]

    async def run() -> None:
        async with EnginePool() as pool:
            publisher = Publisher(pool, FIRST)
            side = EngineSide(launch, publisher)
            try:
                await side.start()
                await publisher.publish(on_disk(5, Path("version-5")))
                assert servers[0].sglang.version == "5"
                servers[0].ended = True
                assert side.problem()
                await side.revive()
                assert folders == [FIRST.folder, FIRST.folder]
                assert servers[1].sglang.version == "5"
                assert publisher.admitted == {servers[1].url}
            finally:
                await side.close()

    asyncio.run(asyncio.wait_for(run(), 60))
