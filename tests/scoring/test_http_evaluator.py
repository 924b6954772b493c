"""A service as evaluator: a real server that hangs, fails, drips, floods and hangs up."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from evaluating import open_files, settings_of, subject_of

from gyre.errors import InputError
from gyre.scoring.evaluation import Evaluation
from gyre.scoring.making import make_evaluator

web = pytest.importorskip("aiohttp.web")
Handler = Callable[[Any], Awaitable[Any]]


def asked(handler: Handler, subject: Any = None, **settings: Any) -> Evaluation:
    """Ask a server that answers by `handler`."""

    async def ask() -> Evaluation:
        runner = web.AppRunner(web.Application(), handle_signals=False, shutdown_timeout=0.1)
        runner.app.router.add_post("/judge", handler)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}/judge"
            values = {"timeout_s": 5.0, "retry_s": 0.01, **settings}
            return await make_evaluator(settings_of("http", url=url, **values)).evaluate(subject or subject_of(None))
        finally:
            await runner.cleanup()

    return asyncio.run(ask())


def test_the_reply_is_the_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "k")
    seen: list[Any] = []

    async def judge(request: Any) -> Any:
        seen.append((await request.json(), request.headers["authorization"], request.headers["x-more"]))
        return web.json_response({"score": 0.0, "reference": "image:3", "details": {"n": 1}})

    subject = subject_of(tmp_path, data={"x": "é"})
    evaluation = asked(judge, subject, key_env="JUDGE_KEY", headers={"x-more": "m"})
    assert (evaluation.valid, evaluation.score, evaluation.reference) == (True, 0.0, "image:3")
    ((said, key, more),) = seen
    assert (said["execution"], said["folder"], said["data"], key, more) == (
        "e",
        str(tmp_path),
        {"x": "é"},
        "Bearer k",
        "m",
    )


@pytest.mark.parametrize("status", [502, 503])
def test_a_service_that_is_gone_for_a_moment_is_asked_again(status: int) -> None:
    replies = [status, status, 200]

    async def judge(request: Any) -> Any:
        return web.json_response({"score": 1}, status=replies.pop(0))

    assert asked(judge).score == 1.0
    assert replies == []


@pytest.mark.parametrize(
    ("status", "why"), [(500, "HTTP 500: no luck"), (404, "HTTP 404: no luck"), (422, "HTTP 422"), (201, "HTTP 201")]
)
def test_another_status_is_not_valid_and_not_asked_again(status: int, why: str) -> None:
    calls = []

    async def judge(request: Any) -> Any:
        calls.append(1)
        return web.Response(status=status, text="no luck")

    evaluation = asked(judge)
    assert (evaluation.valid, len(calls)) == (False, 1)
    assert evaluation.reason.startswith(why)


def test_a_redirect_is_not_followed() -> None:
    async def judge(request: Any) -> Any:
        raise web.HTTPFound("/judge")

    assert asked(judge).reason == "HTTP 302: it redirects"


async def hang(request: Any) -> Any:
    await asyncio.sleep(1000)


async def drip(request: Any) -> Any:
    reply = web.StreamResponse()
    await reply.prepare(request)
    for character in json.dumps({"score": 1}).ljust(1000):
        await reply.write(character.encode())
        await asyncio.sleep(0.1)


async def reset(request: Any) -> Any:
    request.transport.abort()


async def break_off(request: Any) -> Any:
    reply = web.StreamResponse(headers={"content-length": "100"})
    await reply.prepare(request)
    await reply.write(b'{"score":')
    request.transport.abort()


async def always_503(request: Any) -> Any:
    return web.Response(status=503)


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (hang, "not done within 0.5 s"),
        (drip, "not done within 0.5 s"),
        (reset, "not done within 0.5 s; last: ServerDisconnectedError"),
        (break_off, "not done within 0.5 s; last: ClientPayloadError"),
        (always_503, "not done within 0.5 s; last: HTTP 503"),
    ],
)
def test_a_service_that_does_not_answer_is_given_up_in_time(handler: Handler, why: str) -> None:
    evaluation = asked(handler, timeout_s=0.5)
    assert not evaluation.valid
    assert evaluation.reason.startswith(why)


def test_a_service_that_is_not_there_is_given_up_in_time() -> None:
    settings = settings_of("http", url="http://127.0.0.1:9/judge", timeout_s=0.3, retry_s=0.01)
    evaluation = asyncio.run(make_evaluator(settings).evaluate(subject_of(None)))
    assert "ClientConnectorError" in evaluation.reason


def test_a_huge_body_is_not_read() -> None:
    sent = 0

    async def flood(request: Any) -> Any:
        nonlocal sent
        reply = web.StreamResponse()
        await reply.prepare(request)
        while True:
            await reply.write(b"x" * 65_536)
            sent += 65_536

    assert asked(flood, most_bytes=1000).reason == "unusable result: it has more than 1,000 bytes, the limit"
    assert sent < 100_000_000


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff", b"", b'{"score": "1"}'])
def test_a_reply_that_is_no_evaluation_is_not_valid(body: bytes) -> None:
    async def judge(request: Any) -> Any:
        return web.Response(body=body)

    assert asked(judge).reason.startswith("unusable result")


def test_a_call_leaves_no_connection_open() -> None:
    async def judge(request: Any) -> Any:
        return web.json_response({"score": 1})

    asked(judge)
    before = open_files()
    asked(judge)
    assert open_files() == before


def test_what_it_needs_is_said_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(InputError, match="NO_SUCH_KEY is not set"):
        make_evaluator(settings_of("http", url="http://x", key_env="NO_SUCH_KEY"))
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(InputError, match=r"pip install 'gyre\[proxy\]'"):
        make_evaluator(settings_of("http", url="http://x"))
