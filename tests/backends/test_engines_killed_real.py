"""A real SGLang that is killed (-9) before a reply's first token, and after its last, before its stream has ended."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sglang", reason="a real engine needs SGLang")
import aiohttp
from engine_faults import asked, tokens
from small_server import SMALL_SERVER

from gyre.backends.engines.engine import Chunk, Generation
from gyre.backends.engines.generating import Move, generate
from gyre.backends.engines.launching import Server, ServerSettings, start_sglang
from gyre.backends.engines.member import Checks
from gyre.backends.engines.pool import EnginePool
from gyre.backends.engines.sglang import SGLangEngine
from gyre.trajectory.call import Finish

QUICK = Checks(every_s=2.0, retry_s=0.2, retry_most_s=1.0)
NEW = 60


@pytest.fixture
def doomed(sglang_engine: Server, tiny_model: Path, tmp_path: Path) -> Iterator[Server]:
    """A second server, to be killed."""
    server = start_sglang(ServerSettings(tiny_model, tmp_path / "doomed.log", cpu=True, flags=SMALL_SERVER))
    try:
        server.wait_ready(300)
        yield server
    finally:
        server.end(signal.SIGKILL)


async def read(pool: EnginePool, generation: Generation, moves: list[Move]) -> list[Chunk]:
    async with aclosing(generate(pool, "x", generation, on_move=moves.append)) as chunks:
        return [chunk async for chunk in chunks]


def check_whole(chunks: list[Chunk]) -> None:
    assert len(tokens(chunks)) == NEW
    assert [chunk.finish for chunk in chunks if chunk.finish is not None] == [Finish.LENGTH]
    assert chunks[-1].finish is Finish.LENGTH


def test_killed_before_the_first_token(sglang_engine: Server, doomed: Server) -> None:
    """It holds the request, paused, and dies; another makes the whole reply."""

    async def run() -> None:
        moves: list[Move] = []
        async with aiohttp.ClientSession() as session, EnginePool(checks=QUICK) as pool:
            pool.add(SGLangEngine(doomed.url))
            warm = await read(pool, asked(2, request_id="warm"), moves)
            assert tokens(warm)
            async with session.post(f"{doomed.url}/pause_generation", json={"mode": "in_place"}) as paused:
                assert paused.status == 200, await paused.text()
            asking = asyncio.create_task(read(pool, asked(NEW, inputs=50, min_new_tokens=NEW), moves))
            await asyncio.sleep(1.0)
            assert not asking.done()
            pool.add(SGLangEngine(sglang_engine.url))
            doomed.end(signal.SIGKILL)
            check_whole(await asyncio.wait_for(asking, 120))
        assert [(move.engine, move.tokens) for move in moves] == [(doomed.url, 0)]

    asyncio.run(run())


class EndlessEngine(SGLangEngine):
    """An engine whose last event is cut: its tokens come, its end does not, for the server is killed between."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.url)
        self._server = server

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        async with aclosing(super().generate(generation)) as chunks:
            async for chunk in chunks:
                if chunk.finish is None:
                    yield chunk
                    continue
                cut: Any = Chunk(chunk.token_ids, chunk.logprobs, chunk.versions)
                yield cut
                self._server.end(signal.SIGKILL)
        async with aclosing(super().generate(generation)) as dead:  # what is left of the server says so itself
            async for chunk in dead:
                yield chunk


def test_killed_after_the_last_token(sglang_engine: Server, doomed: Server) -> None:
    """All tokens came: the reply is whole, and nobody is asked for more."""

    async def run() -> None:
        moves: list[Move] = []
        async with EnginePool(checks=QUICK) as pool:
            pool.add(EndlessEngine(doomed))
            asking = asyncio.create_task(read(pool, asked(NEW, inputs=50, min_new_tokens=NEW), moves))
            check_whole(await asyncio.wait_for(asking, 120))
        assert [(move.engine, move.tokens) for move in moves] == [(doomed.url, NEW)]

    asyncio.run(run())
