"""Engines that stay paused, publish weights, sample what the model does not have, or say too much of an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("aiohttp", reason="the engines' client needs aiohttp")

import numpy as np

from gyre.backends.engines.engine import Chunk, Generation, Sampling
from gyre.backends.engines.error_text import error_text
from gyre.backends.engines.generating import EnginesFailingError, Persistence, generate
from gyre.backends.engines.member import Checks
from gyre.backends.engines.pool import EnginePool
from gyre.backends.engines.scripted import Pace, ScriptedEngine, counting
from gyre.backends.engines.sglang_stream import ReplyReader

QUICK = Checks(every_s=0.02, retry_s=0.02, retry_most_s=0.05, stalled_s=0.2)
ASKED = Generation("r", np.arange(5, dtype=np.int32), Sampling(max_new_tokens=30))


async def up(pool: EnginePool, *engines: ScriptedEngine) -> None:
    for engine in engines:
        pool.add(engine)
    while any(pool.info(engine.name) is None for engine in engines):
        await asyncio.sleep(0.01)


def run(work: Callable[[], object]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work()  # type: ignore[misc]

    asyncio.run(bounded())


def test_what_waits_on_a_paused_engine_goes_to_one_that_is_not() -> None:
    async def work() -> None:
        async with EnginePool(checks=QUICK) as pool:
            paused = ScriptedEngine("paused", pace=Pace(tokens_per_s=100.0))
            await up(pool, paused)
            tokens: list[int] = []
            moves: list[str] = []

            async def listen() -> None:
                async for chunk in generate(pool, "x", ASKED, on_move=lambda move: moves.append(move.engine)):
                    tokens.extend(chunk.token_ids)

            listening = asyncio.create_task(listen())
            while len(tokens) < 3:
                await asyncio.sleep(0.01)
            paused.pause()
            await asyncio.sleep(0.5)
            assert moves == []  # where should it go
            await up(pool, ScriptedEngine("other"))
            await listening
            assert moves == ["paused"]
            assert tokens == list(counting(ASKED))[:30]
            assert paused.closed  # told to forget the request

    run(work)


def test_a_published_version_is_seen_without_a_new_start() -> None:
    async def work() -> None:
        async with EnginePool(checks=Checks(every_s=30.0)) as pool:
            engine = ScriptedEngine("one")
            await up(pool, engine)
            engine.publish(7)
            pool.refresh("one")
            while (info := pool.info("one")) is None or info.version != 7:
                await asyncio.sleep(0.01)

    run(work)


@pytest.mark.parametrize("bad", [(300,), (-1,), (5, 2**31 - 1)])
def test_an_id_that_the_model_does_not_have_is_the_engines_fault(bad: Sequence[int]) -> None:
    class Wrong(ScriptedEngine):
        async def generate(self, generation: Generation):  # type: ignore[no-untyped-def]
            async for chunk in super().generate(generation):
                yield chunk if chunk.finish is None else Chunk((*bad,), (-1.0,) * len(bad), (0,) * len(bad))

    async def work() -> None:
        async with EnginePool(checks=QUICK) as pool:
            await up(pool, Wrong("wrong", lambda generation: [1, 2], pace=Pace(chunk_tokens=1)))
            seen: list[int] = []
            patience = Persistence(pause_s=0.0, fatal_losses=2)

            async def listen() -> None:
                async for chunk in generate(pool, "x", ASKED, vocabulary=300, persistence=patience):
                    seen.extend(chunk.token_ids)

            with pytest.raises(EnginesFailingError, match="none of the model's"):
                await listen()
            assert set(seen) <= {1, 2}

    run(work)


_SECRET, _PROMPT = "sk-abcdefghij0123456789", "the whole of a secret prompt that somebody sent to the engine"


@pytest.mark.parametrize(
    "said",
    [
        f"Authorization: Bearer {_SECRET} is wrong",
        f'{{"error": {{"message": "key {_SECRET} is wrong", "input": "{_PROMPT}"}}}}',
        f'{{"detail": [{{"msg": "bad input", "input": "{_PROMPT}"}}]}}',
        f"could not read '{_PROMPT}'",
        {"message": f'got "{_PROMPT}"', "input_ids": [1, 2, 3]},
        f"input_ids: [{', '.join(map(str, range(5000)))}] are too many; api_key={_SECRET}",
        "x" * 10_000,
    ],
)
def test_what_engines_say_of_errors_is_short_and_holds_no_secret(said: object) -> None:
    text = error_text(said)
    assert 0 < len(text) <= 200
    assert _SECRET not in text
    assert "secret prompt" not in text
    assert "1, 2, 3" not in text


def test_what_an_engine_says_of_a_request_is_still_told() -> None:
    said = "The input (120 tokens) is longer than the model's context length (100 tokens)."
    assert error_text(said) == said
    payload = orjson.dumps({"error": {"code": 400, "message": said}})
    with pytest.raises(Exception, match="longer than the model's context"):
        ReplyReader(lambda name: 0).read(payload)


@given(st.text() | st.dictionaries(st.text(), st.none() | st.text() | st.lists(st.integers())) | st.lists(st.text()))
def test_any_error_becomes_one_short_line(said: object) -> None:
    for form in (said, json.dumps(said)):
        text = error_text(form)
        assert len(text) <= 200
        assert text == "" or text.isprintable()
