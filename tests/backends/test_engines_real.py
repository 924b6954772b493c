"""A real SGLang: tokens and log-probs against transformers' own computation, through updates of weights and kills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("sglang", reason="a real engine needs SGLang")
torch = pytest.importorskip("torch", reason="log-probs are computed again with torch")
transformers = pytest.importorskip("transformers", reason="log-probs are computed again with transformers")
import aiohttp  # noqa: E402
from engine_faults import asked, reply, tokens, versions  # noqa: E402

from gyre.backends.engines.engine import Chunk, EngineLostError, RequestRefusedError  # noqa: E402
from gyre.backends.engines.generating import Move, generate  # noqa: E402
from gyre.backends.engines.launching import Server  # noqa: E402
from gyre.backends.engines.member import Checks  # noqa: E402
from gyre.backends.engines.pool import EnginePool  # noqa: E402
from gyre.backends.engines.same_model import ModelMarks  # noqa: E402
from gyre.backends.engines.sglang import SGLangEngine  # noqa: E402
from gyre.backends.proxy.tokens import Renderer  # noqa: E402
from gyre.trajectory.call import Finish  # noqa: E402

QUICK = Checks(every_s=2.0, retry_s=0.2, retry_most_s=1.0)
Post = Callable[..., Awaitable[None]]


@asynccontextmanager
async def engine_at(server: Server) -> AsyncIterator[tuple[SGLangEngine, Post]]:
    engine = SGLangEngine(server.url)
    async with aiohttp.ClientSession() as session:

        async def post(path: str, **body: object) -> None:
            async with session.post(server.url + path, json=body) as response:
                assert response.status == 200, await response.text()

        try:
            yield engine, post
        finally:
            await engine.close()


async def load(engine: SGLangEngine) -> int:
    """Requests that the server says it runs or holds waiting."""
    states = (await engine._get("/v1/loads"))["loads"]
    return sum(state["num_running_reqs"] + state["num_waiting_reqs"] for state in states)


def test_it_says_what_it_is(sglang_engine: Server, tiny_model: Path) -> None:
    async def run() -> None:
        async with engine_at(sglang_engine) as (engine, _):
            assert await engine.healthy()
            info = await engine.info()
            assert (info.model, info.version) == (str(tiny_model), 0)
            assert (info.kv_tokens, info.max_running) == (32768, 16)
            assert 32_000 < info.max_context_tokens <= 32_768
            same = SGLangEngine(sglang_engine.url, marks=Renderer(tiny_model).marks)
            assert not (await same.info()).unproven
            await same.close()
            other = SGLangEngine(sglang_engine.url, marks=ModelMarks((1, 2, 3), {}))
            with pytest.raises(EngineLostError, match="its tokenizer makes other tokens"):
                await other.info()
            await other.close()
            whole = await reply(engine, asked(90, inputs=100))
            assert whole[-1].finish in (Finish.LENGTH, Finish.STOP)

    asyncio.run(run())


def test_log_probs_are_those_of_transformers(sglang_engine: Server, recomputed: Callable[..., float]) -> None:
    async def run() -> None:
        async with engine_at(sglang_engine) as (engine, _):
            asks = [
                asked(40, request_id=f"lp{at}", inputs=20 + 7 * at, temperature=temperature)
                for at, temperature in enumerate([1.0, 1.0, 0.6, 1.4, 1.0, 1.0])
            ]
            replies = await asyncio.gather(*(reply(engine, generation) for generation in asks))
            for generation, chunks in zip(asks, replies, strict=True):
                assert recomputed(generation, chunks) < 1e-4
                assert len(chunks) > 1 or len(tokens(chunks)) == 1
            again = await reply(engine, asked(8, request_id="again", inputs=300))
            again = await reply(engine, asked(8, request_id="once more", inputs=300))
            assert again[-1].cached_tokens > 250

    asyncio.run(run())


def test_finishes_and_refusals(sglang_engine: Server) -> None:
    async def run() -> None:
        async with engine_at(sglang_engine) as (engine, _):
            greedy = {"temperature": 0.0, "inputs": 30}
            whole = await reply(engine, asked(20, request_id="f0", **greedy))
            [stop] = tokens(whole)[5:6]
            first = tokens(whole).index(stop)
            cut = await reply(engine, asked(20, request_id="f1", stop_token_ids=(stop,), **greedy))
            assert tokens(cut) == tokens(whole)[: first + 1]  # the stop token is told, with its log-prob
            assert (whole[-1].finish, cut[-1].finish) == (Finish.LENGTH, Finish.STOP)
            for bad, words in (
                (asked(100_000), "context length"),
                (asked(4, constraint={"regex": "((("}), "regex"),
                (asked(4, top_p=7.0), "top_p"),
                (asked(4, constraint={"blub": 1}), "blub"),
            ):
                with pytest.raises(RequestRefusedError, match=words):
                    await reply(engine, bad)

    asyncio.run(run())


def test_closing_aborts_on_the_engine(sglang_engine: Server) -> None:
    async def run() -> None:
        async with engine_at(sglang_engine) as (engine, _):
            await reply(engine, asked(3500, request_id="closed", min_new_tokens=3500), most_chunks=3)
            while await load(engine):
                await asyncio.sleep(0.05)

    asyncio.run(run())


def test_each_token_has_the_version_that_sampled_it(
    sglang_engine: Server, tiny_model: Path, other_tiny_model: Path, recomputed: Callable[..., float]
) -> None:
    async def update(post: Post, model: Path, name: str) -> None:
        await post("/pause_generation", mode="retract")
        await post("/update_weights_from_disk", model_path=str(model), weight_version=name, flush_cache=True)
        await post("/continue_generation")

    async def run() -> None:
        async with engine_at(sglang_engine) as (engine, post):
            generation = asked(800, request_id="versions", inputs=40, min_new_tokens=800)
            got: list[Chunk] = []

            async def read() -> None:
                async with aclosing(engine.generate(generation)) as stream:
                    async for chunk in stream:
                        got.append(chunk)  # noqa: PERF401 (others look at it meanwhile)

            reading = asyncio.create_task(read())
            try:
                while len(tokens(got)) < 100:
                    await asyncio.sleep(0.01)
                await update(post, other_tiny_model, "v1")
                await reading
            finally:
                await update(post, tiny_model, "0")
            said = versions(got)
            assert said == sorted(said)
            assert set(said) == {0, 1}
            assert recomputed(generation, got) < 1e-4

    asyncio.run(run())


def test_a_reply_goes_on_after_a_pause_with_abort(sglang_engine: Server, recomputed: Callable[..., float]) -> None:
    async def run() -> None:
        generation, moves = asked(400, request_id="paused", inputs=50, min_new_tokens=400), list[Move]()
        async with engine_at(sglang_engine) as (_, post), EnginePool(checks=QUICK) as pool:
            pool.add(SGLangEngine(sglang_engine.url))
            got: list[Chunk] = []
            stream = generate(pool, "x", generation, on_move=moves.append)
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    got.append(chunk)
                    if len(tokens(got)) >= 80 and not moves:
                        await post("/pause_generation", mode="abort")
                        asyncio.get_running_loop().call_later(0.5, asyncio.ensure_future, post("/continue_generation"))
                        moves.append(Move("x", "", "paused once", 0))
            assert [move.reason for move in moves] == ["paused once", "it broke off"]
            assert len(tokens(got)) == 400
            assert recomputed(generation, got) < 1e-4

    asyncio.run(run())
