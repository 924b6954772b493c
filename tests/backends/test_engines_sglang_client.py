"""The SGLang client against servers that behave and that do not; test_engines_real.py has the real one."""

from __future__ import annotations

import asyncio
import logging

import pytest

pytest.importorskip("aiohttp", reason="engines are reached with aiohttp")
from aiohttp import web
from engine_faults import asked, logprobs, reply, serving, serving_raw, tokens, until, versions

from gyre.backends.engines.engine import EngineLostError, EngineUnreachableError, RequestRefusedError
from gyre.backends.engines.launching import free_port
from gyre.backends.engines.scripted import Pace, ScriptedEngine, place_logprob
from gyre.backends.engines.scripted_server import ScriptedServer
from gyre.backends.engines.sglang import Patience, SGLangEngine
from gyre.trajectory.call import Finish

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"text":"","output_ids":[5],"meta_info":{"finish_reason":null,"weight_version":"v3",'
    b'"output_token_logprobs":[[-1.5,5,null]],"completion_tokens":1}}\n\n'
)


def http_chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@pytest.mark.parametrize("incremental", [True, False])
def test_a_reply_comes_over_http_as_it_was_scripted(incremental: bool) -> None:
    async def run() -> None:
        double = ScriptedEngine("double", pace=Pace(chunk_tokens=7))
        async with serving(ScriptedServer(double, incremental=incremental).application()) as url:
            engine = SGLangEngine(url)
            assert await engine.healthy()
            assert (await engine.info()).max_context_tokens == 1 << 20
            chunks = await reply(engine, asked(2000))
            assert tokens(chunks) == [place % 256 for place in range(10, 2010)]
            assert logprobs(chunks) == [place_logprob(place) for place in range(10, 2010)]
            assert versions(chunks) == [0] * 2000
            assert chunks[-1].finish is Finish.LENGTH
            assert len(chunks) > 10
            await engine.close()

    asyncio.run(run())


def test_versions_follow_a_publish_in_mid_reply() -> None:
    async def run() -> None:
        double = ScriptedEngine("double", pace=Pace(tokens_per_s=50))
        async with serving(ScriptedServer(double).application()) as url:
            engine = SGLangEngine(url)
            running = asyncio.create_task(reply(engine, asked(60)))
            await until(lambda: double.generations)
            await asyncio.sleep(0.05)
            double.publish(9)
            double.pace = Pace()
            said = versions(await running)
            assert said == sorted(said)
            assert set(said) == {0, 9}
            await engine.close()

    asyncio.run(run())


def test_closing_a_reply_aborts_that_request_and_no_other() -> None:
    async def run() -> None:
        double = ScriptedEngine("double", pace=Pace(tokens_per_s=50))
        async with serving(ScriptedServer(double).application()) as url:
            engine = SGLangEngine(url)
            other = asyncio.create_task(reply(engine, asked(40, request_id="r.10")))
            await reply(engine, asked(100_000, request_id="r.1"), most_chunks=2)
            chunks = await other
            assert len(tokens(chunks)) == 40  # though "r.1" begins its id too
            await until(lambda: double.closed == ["r.1;"])
            await engine.close()

    asyncio.run(run())


def test_a_version_that_is_no_number_is_minus_one_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    first = EVENT.replace(b"v3", b"main")
    last = first.replace(b'tokens":1', b'tokens":2').replace(b'reason":null', b'reason":{"type":"stop"}')

    async def run() -> list[int]:
        async with serving_raw(HEAD, http_chunk(first), http_chunk(last)) as url:
            engine = SGLangEngine(url)
            said = versions(await reply(engine, asked()))
            await engine.close()
            return said

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(run()) == [-1, -1]
    assert sum("is no number" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        ((), 0),  # reset before an answer
        ((HEAD,), 0),
        ((HEAD, http_chunk(EVENT)), 1),
        ((HEAD, http_chunk(EVENT + EVENT[:40])), 1),  # torn in an event
        ((HEAD, http_chunk(EVENT) + b"fff\r\ndata: {"), 1),  # torn in a chunk
        ((HEAD, http_chunk(EVENT), http_chunk(b"data: [DONE]\n\n"), http_chunk(b"")), 1),  # ended without an end
        ((HEAD, http_chunk(EVENT), http_chunk(b"data: nonsense\n\n")), 1),
        ((b"HTTP/1.1 503 Unavailable\r\nContent-Length: 4\r\n\r\nbusy",), 0),
        ((b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno",), 0),
        ((b"garbage\r\n\r\n",), 0),
    ],
)
def test_an_engine_that_breaks_is_lost_and_what_it_said_stands(answer: tuple[bytes, ...], count: int) -> None:
    async def run() -> None:
        async with serving_raw(*answer) as url:
            engine, got = SGLangEngine(url), []

            async def read() -> None:
                async for chunk in engine.generate(asked()):
                    got.extend(chunk.token_ids)

            with pytest.raises(EngineLostError):
                await read()
            assert got == [5] * count
            await engine.close()

    asyncio.run(run())


def test_a_refusal_carries_the_engines_words() -> None:
    body = b'{"error":"unknown field `blub`"}'
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def run() -> None:
        async with serving_raw(answer) as url:
            engine = SGLangEngine(url)
            with pytest.raises(RequestRefusedError, match="unknown field `blub`"):
                await reply(engine, asked())
            await engine.close()
        async with serving(
            ScriptedServer(ScriptedEngine("d", refuse=lambda generation: "not today")).application()
        ) as url:
            engine = SGLangEngine(url)
            with pytest.raises(RequestRefusedError, match="not today"):
                await reply(engine, asked())
            await engine.close()

    asyncio.run(run())


def test_nobody_there_is_unreachable() -> None:
    async def run() -> None:
        engine = SGLangEngine(f"http://127.0.0.1:{free_port()}")
        with pytest.raises(EngineUnreachableError):
            await reply(engine, asked())
        with pytest.raises(EngineLostError):
            await engine.info()
        assert not await engine.healthy()
        await engine.close()

    asyncio.run(run())


def test_a_silent_engine_is_lost_only_where_it_does_not_answer() -> None:
    patience = Patience(silence_s=0.1, probe_s=0.2, health_s=0.2)

    async def hung() -> None:
        async with serving_raw(HEAD, http_chunk(EVENT), stay=True) as url:
            engine = SGLangEngine(url, patience=patience)
            with pytest.raises(EngineLostError, match="silent"):
                await reply(engine, asked())
            await engine.close()

    async def paused() -> None:
        double = ScriptedEngine("double", pace=Pace(tokens_per_s=1000))
        async with serving(ScriptedServer(double).application()) as url:
            engine = SGLangEngine(url, patience=patience)
            double.pause()
            running = asyncio.create_task(reply(engine, asked(20)))
            await asyncio.sleep(0.5)  # several times the silence that is suspicious
            assert not running.done()
            double.resume()
            assert len(tokens(await running)) == 20
            await engine.close()

    asyncio.run(hung())
    asyncio.run(paused())


def test_silent_replies_share_one_question() -> None:
    async def run() -> None:
        double = ScriptedEngine("double", pace=Pace(tokens_per_s=1000))
        async with serving(ScriptedServer(double).application()) as url:
            engine = _Asking(url, patience=Patience(silence_s=0.4))
            double.pause()
            running = [asyncio.create_task(reply(engine, asked(3, request_id=f"r{at}"))) for at in range(20)]
            while not engine.asked:
                await asyncio.sleep(0.01)
            assert engine.most == 1
            double.resume()
            assert all(len(tokens(chunks)) == 3 for chunks in await asyncio.gather(*running))
            await engine.close()

    asyncio.run(run())


class _Asking(SGLangEngine):
    """Counts the questions whether the server lives, at one time."""

    asked = now = most = 0

    async def _answers(self, path: str, within_s: float) -> bool:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.05)
        answer = await super()._answers(path, within_s)
        self.now, self.asked = self.now - 1, self.asked + 1
        return answer


def test_hundreds_of_streams_run_at_once() -> None:
    async def run() -> None:
        double = ScriptedEngine("double", pace=Pace(tokens_per_s=20, first_token_s=0.5))
        async with serving(ScriptedServer(double).application()) as url:
            engine = SGLangEngine(url)
            replies = await asyncio.gather(*(reply(engine, asked(4, request_id=f"r{at}")) for at in range(300)))
            assert all(tokens(chunks) == [10, 11, 12, 13] for chunks in replies)
            await engine.close()

    asyncio.run(run())


def test_a_key_is_sent_and_not_shown() -> None:
    seen: list[str] = []

    async def health(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response()

    async def run() -> None:
        application = web.Application()
        application.add_routes([web.get("/health", health)])
        async with serving(application) as url:
            engine = SGLangEngine(url, key="secret")
            assert await engine.healthy()
            assert "secret" not in repr(vars(engine).keys()) + engine.name
            await engine.close()

    asyncio.run(run())
    assert seen == ["Bearer secret"]
