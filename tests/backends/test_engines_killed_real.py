"""A real SGLang that is killed (-9): before a reply's first token, in its middle, and after its last token."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

pytest.importorskip("sglang", reason="a real engine needs SGLang")
import aiohttp
from engine_faults import asked, tokens, until
from small_server import SMALL_SERVER

from gyre.backends.engines.engine import Chunk, Generation
from gyre.backends.engines.generating import Move, generate
from gyre.backends.engines.launching import Server, ServerSettings, start_sglang
from gyre.backends.engines.member import Checks, MemberState
from gyre.backends.engines.pool import EnginePool
from gyre.backends.engines.sglang import SGLangEngine
from gyre.trajectory.call import Finish

QUICK = Checks(every_s=2.0, retry_s=0.2, retry_most_s=1.0)
NEW = 60
MANY = 300
FIRST = 40  # of these, before the kill


@pytest.fixture
def doomed(sglang_engine: Server, tiny_model: Path, tmp_path: Path) -> Iterator[Server]:
    """A second server, to be killed."""
    server = start_sglang(ServerSettings(tiny_model, tmp_path / "doomed.log", cpu=True, flags=SMALL_SERVER))
    try:
        server.wait_ready(300)
        yield server
    finally:
        server.end(signal.SIGKILL)


class CutEngine(SGLangEngine):
    """An engine of which one reply's last event is cut: its tokens come, its end does not, for the server is killed."""

    def __init__(self, url: str, killed: asyncio.Event, cut: str) -> None:
        super().__init__(url)
        self.all_came = asyncio.Event()
        self._killed = killed
        self._cut = cut

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        async with aclosing(super().generate(generation)) as chunks:
            async for chunk in chunks:
                if chunk.finish is None or not generation.request_id.startswith(self._cut):
                    yield chunk
                    continue
                yield Chunk(chunk.token_ids, chunk.logprobs, chunk.versions)
                self.all_came.set()
                await self._killed.wait()
                async with aclosing(super().generate(generation)) as dead:  # what is left of it says so itself
                    async for last in dead:
                        yield last


def test_one_kill_before_during_and_after_replies(
    sglang_engine: Server, doomed: Server, recomputed: Callable[..., float]
) -> None:
    """What it holds, paused, another makes; four go on there from what had come; where all had, nobody is asked."""

    async def run() -> None:
        killed, moves = asyncio.Event(), list[Move]()
        got: dict[str, list[Chunk]] = {}
        asks = {name: asked(MANY, request_id=name, inputs=40, min_new_tokens=MANY) for name in "abcd"}
        asks |= {name: asked(NEW, request_id=name, inputs=50, min_new_tokens=NEW) for name in ("after", "before")}

        async with aiohttp.ClientSession() as session, EnginePool(checks=QUICK) as pool:
            engine = CutEngine(doomed.url, killed, "after")
            pool.add(engine)

            async def read(name: str) -> None:
                got[name] = []
                async with aclosing(generate(pool, name, asks[name], on_move=moves.append)) as chunks:
                    async for chunk in chunks:
                        got[name].append(chunk)

            reading = [asyncio.create_task(read(name)) for name in ("after", *"abcd")]
            await until(lambda: engine.all_came.is_set() and all(len(tokens(got[name])) >= FIRST for name in "abcd"))
            async with session.post(f"{doomed.url}/pause_generation", json={"mode": "in_place"}) as paused:
                assert paused.status == 200, await paused.text()
            reading.append(asyncio.create_task(read("before")))
            await asyncio.sleep(1.0)
            assert sum(task.done() for task in reading) == 0
            pool.add(SGLangEngine(sglang_engine.url))
            doomed.end(signal.SIGKILL)
            killed.set()
            await asyncio.wait_for(asyncio.gather(*reading), 240)
            assert pool.members()[doomed.url] is MemberState.LOST
        for name, chunks in got.items():
            assert len(tokens(chunks)) == asks[name].sampling.max_new_tokens, name
            assert [chunk.finish for chunk in chunks if chunk.finish is not None] == [Finish.LENGTH]
            assert chunks[-1].finish is Finish.LENGTH
            assert recomputed(asks[name], chunks) < 1e-4
        assert {move.engine for move in moves} == {doomed.url}
        left = {move.execution: move.tokens for move in moves}
        assert len(left) == len(moves) == 6
        assert (left["before"], left["after"]) == (0, NEW)
        assert all(FIRST <= left[name] < MANY for name in "abcd")

    asyncio.run(run())
