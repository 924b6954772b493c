"""Many calls at once, and large ones: limits and bounds hold whatever the order in which things happen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import Bench, bench, renderer_of, saying  # noqa: E402

from gyre.backends.engines.engine import EngineInfo  # noqa: E402
from gyre.backends.engines.scripted import Pace, ScriptedEngine  # noqa: E402
from gyre.backends.proxy.bodies import Bodies, BodiesFullError, BodyTooSlowError  # noqa: E402
from gyre.backends.proxy.http_messages import BodyTooLargeError, ClientGoneError  # noqa: E402
from gyre.backends.proxy.limits import Bounds, Limits  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402

INFO = EngineInfo("scripted", kv_tokens=1 << 16, max_running=64, max_context_tokens=2048, version=0)


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")


@pytest.fixture
def running(renderer: Any, tmp_path: Path) -> Iterator[Bench]:
    script, pace = saying(renderer, "word " * 40), Pace(tokens_per_s=100.0)
    settings = ProxySettings(linger_s=0.1, bounds=Bounds(calls_at_once=4, body_s=0.3))
    with bench(
        renderer, tmp_path / "out", lambda: [ScriptedEngine("one", script, pace=pace, info=INFO)], settings
    ) as made:
        yield made


def post(opened: Any, body: Any, path: str = "/v1/chat/completions", **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {opened.key}", **headers}
    return httpx.post(opened.base_url + path, content=content, headers=headers, timeout=60)


def asking(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def at_once(opened: Any, count: int) -> list[Any]:
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda number: post(opened, asking(f"number {number}")), range(count)))


def test_a_step_limit_holds_for_calls_at_once(running: Bench) -> None:
    answers = at_once(running.open("steps", limits=Limits(steps=1)), 10)
    recorded = [answer for answer in answers if answer.status_code == 200 and "word" in answer.text]
    assert len(recorded) == len(running.records("steps")) == 1
    assert all(answer.status_code in (429, 403) for answer in answers if "word" not in answer.text and answer.is_error)


def test_a_token_limit_holds_for_calls_at_once(running: Bench) -> None:
    limit = 150
    at_once(running.open("tokens", limits=Limits(tokens=limit)), 4)
    records = running.records("tokens")
    assert len(records) > 1
    used = sum(len(record.input_ids) + len(record.output_ids) for record in records)
    assert used <= limit + len(records)  # each may be a token further when it is stopped


def test_calls_whose_bodies_come_late_find_no_room_beyond_the_bound(running: Bench) -> None:
    answers = at_once(running.open("room"), 12)
    assert {answer.status_code for answer in answers} <= {200, 429}
    assert running.call(lambda: max(running.proxy.executions()[0]["running"], 0)) == 0


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (asking("x", stop=["s"] * 65), 400, "65 stop strings"),
        (asking("x") | {"messages": [{"role": "user", "content": "x"}] * 20_001}, 400, "20001 messages"),
        (
            asking("x", tools=[{"type": "function", "function": {"name": f"f{n}"}} for n in range(2001)]),
            400,
            "2001 tools",
        ),
        (asking("x" * 4_000_000), 400, "maximum context length is 2047 tokens"),
    ],
)
def test_large_requests_are_refused(running: Bench, body: dict[str, Any], status: int, said: str) -> None:
    answer = post(running.open("large"), body)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]
    assert running.engines[0].generations == []


def test_what_http_says_has_its_own_status(running: Bench) -> None:
    opened = running.open("http")
    packed = post(opened, b"\x1f\x8b", **{"content-encoding": "gzip"})
    assert (packed.status_code, "compressed" in packed.json()["error"]["message"]) == (415, True)
    for path, allowed in (("/v1/messages", "POST"), ("/v1/responses", "POST")):
        wrong = httpx.get(opened.base_url + path)
        assert (wrong.status_code, wrong.headers["allow"]) == (405, allowed)
    wrong = httpx.post(f"{opened.base_url}/v1/models")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")


def test_a_body_that_does_not_come_is_not_waited_for(running: Bench) -> None:
    opened = running.open("slow")
    host, port = running.proxy.url.removeprefix("http://").split(":")

    async def half() -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {opened.key}\r\ncontent-length: 99\r\n\r\n{{"
        writer.write(head.encode())
        line = await asyncio.wait_for(reader.readline(), 20)
        writer.close()
        return line

    assert b" 408 " in asyncio.run(half())


@pytest.mark.parametrize(
    ("bounds", "parts", "error"),
    [
        (Bounds(), (b"ab", b"cd"), None),
        (Bounds(body_bytes=3), (b"ab", b"cd"), BodyTooLargeError),
        (Bounds(bodies_bytes=3), (b"ab", b"cd"), BodiesFullError),
        (Bounds(), (b"ab", None), ClientGoneError),
        (Bounds(body_s=0.01), (b"ab", 1.0), BodyTooSlowError),
    ],
)
def test_bodies(bounds: Bounds, parts: tuple[Any, ...], error: type[Exception] | None) -> None:
    async def read() -> bytes:
        coming = iter(parts)

        async def receive() -> Any:
            part = next(coming)
            if isinstance(part, float):
                await asyncio.sleep(part)
            if part is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": part, "more_body": part != parts[-1]}

        bodies = Bodies(bounds)
        try:
            async with bodies.read(receive, {}) as body:
                return body
        finally:
            assert bodies._bytes == 0

    if error is None:
        assert asyncio.run(read()) == b"abcd"
    else:
        with pytest.raises(error):
            asyncio.run(read())
