"""Bodies: large ones are read by another process, and give what they would give here."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import bench, renderer_of, saying  # noqa: E402

from gyre.backends.engines.engine import EngineInfo  # noqa: E402
from gyre.backends.engines.scripted import ScriptedEngine  # noqa: E402
from gyre.backends.proxy.body_workers import BodyWorkerLostError, BodyWorkers  # noqa: E402
from gyre.backends.proxy.limits import Bounds  # noqa: E402
from gyre.backends.proxy.read_request import read_request  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402
from gyre.backends.proxy.wire import BadRequestError  # noqa: E402

QUESTION: dict[str, Any] = {"role": "user", "content": "What is there?"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
SMALL = EngineInfo("scripted", kv_tokens=1 << 16, max_running=64, max_context_tokens=2048, version=0)


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")


BODIES = {
    "chat": {"messages": [QUESTION] * 3, "tools": [TOOL], "model": "m", "stop": "x", "junk": [1] * 1000},
    "messages": {"messages": [QUESTION], "system": "half \ud83d", "max_tokens": 5},
    "responses": {"input": "hi", "store": False},
}


@pytest.mark.parametrize("wire", sorted(BODIES))
def test_another_process_reads_what_this_one_would(wire: str) -> None:
    raw, headers = json.dumps(BODIES[wire]).encode(), {"user-agent": "pi", "thread-id": "t"}

    async def work() -> None:
        workers = BodyWorkers(1)
        try:
            for _ in range(2):  # by a new process, and by one that has read before
                assert await workers.read(wire, raw, headers) == read_request(wire, raw, headers)
            for bad in (b"", b"[" * 100_000, b'{"messages": 1}', b"\xff", b'{"a": NaN}'):
                with pytest.raises(BadRequestError):
                    await workers.read(wire, bad, {})
        finally:
            await workers.close()

    asyncio.run(work())


def test_a_process_that_is_lost_is_told_and_replaced() -> None:
    raw = json.dumps(BODIES["chat"]).encode()

    async def work() -> None:
        workers = BodyWorkers(1)
        await workers.read("chat", raw, {})
        (worker,) = workers._idle
        os.kill(worker.pid, signal.SIGSTOP)
        reading = asyncio.create_task(workers.read("chat", raw, {}))
        await asyncio.sleep(0.1)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(BodyWorkerLostError):
            await reading
        assert (await workers.read("chat", raw, {}))[0].model == "m"
        await workers.close()

    asyncio.run(work())


def test_a_large_body_is_answered_like_a_small_one(renderer: Any, tmp_path: Path) -> None:
    bounds = Bounds(body_bytes=300_000, body_at_once_bytes=1000)
    engines = lambda: [ScriptedEngine("one", saying(renderer, "Hello."), info=SMALL)]  # noqa: E731
    with bench(renderer, tmp_path / "out", engines, ProxySettings(bounds=bounds)) as made:
        opened = made.open("large")
        headers = {"authorization": f"Bearer {opened.key}"}

        def post(path: str, body: dict[str, Any]) -> Any:
            return httpx.post(f"{opened.base_url}{path}", headers=headers, json=body, timeout=30)

        padded = {"model": "m", "messages": [QUESTION], "padding": "x" * 200_000}
        answer = post("/v1/chat/completions", padded)
        assert (answer.status_code, answer.json()["choices"][0]["message"]["content"]) == (200, "Hello.")
        assert post("/v1/chat/completions", {**padded, "messages": []}).status_code == 400
        assert post("/v1/chat/completions", {**padded, "more": "x" * 200_000}).status_code == 413
        long = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "word " * 30_000}]}
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            refused = post(path, long)
            assert refused.status_code == 400
            assert refused.json()["error"]["message"].startswith("prompt is too long: ")
        assert len(made.records("large")) == 1


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/chat/completions", {"temperature": "hot"}, "temperature"),
        ("/v1/chat/completions", {"seed": 1.5}, "seed"),
        ("/v1/chat/completions", {"seed": True}, "seed"),
        ("/v1/chat/completions", {"max_tokens": "9"}, "max_tokens"),
        ("/v1/chat/completions", {"top_p": []}, "top_p"),
        ("/v1/messages", {"top_k": "x"}, "top_k"),
        ("/v1/messages", {"max_tokens": {}}, "max_tokens"),
        ("/v1/responses", {"temperature": {}, "input": "hi"}, "temperature"),
    ],
)
def test_parameters_of_the_wrong_kind_are_a_clients_mistake(path: str, body: dict[str, Any], field: str) -> None:
    wire = {"completions": "chat", "messages": "messages", "responses": "responses"}[path.rpartition("/")[2]]
    whole = {"model": "m", "messages": [QUESTION], **body}
    with pytest.raises(BadRequestError, match=f"^{field} must be "):
        read_request(wire, json.dumps(whole).encode(), {})
    read_request(wire, json.dumps({**whole, field: None}).encode(), {})
