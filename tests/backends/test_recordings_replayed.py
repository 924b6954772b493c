"""What real harnesses sent, sent again to a running proxy: all of it is taken, and the replies are the clients' own."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import Bench, bench, renderer_of, saying  # noqa: E402
from wire_hearing import understood  # noqa: E402
from wire_recordings import recorded  # noqa: E402
from wire_replies import Heard  # noqa: E402

from gyre.backends.engines.scripted import Pace, ScriptedEngine  # noqa: E402
from gyre.backends.proxy.limits import Bounds  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402
from gyre.backends.proxy.wires import wire_for  # noqa: E402
from gyre.trajectory.check import refusal  # noqa: E402

SPOKEN: Final = "I think so ✓ and look."
ARGUMENTS: Final = '{"path":  "ü.py", "lines": [1, 2]}'
OURS: Final = {"host", "connection", "content-length", "authorization", "accept-encoding", "transfer-encoding"}
SETTINGS: Final = ProxySettings(
    keep_alive_s=5.0, linger_s=0.1, most_replays=1 << 30, bounds=Bounds(calls_per_s=1e6, calls_burst=1_000_000)
)


def reply_to(prompt: str) -> str:
    """Call the first tool that the prompt tells of, where it does."""
    tool = re.search(r'<tools>\n\{.*?"name": "([^"]+)"', prompt)
    call = f'\n<tool_call>\n{{"name": "{tool[1]}", "arguments": {ARGUMENTS}}}\n</tool_call>' if tool else ""
    return SPOKEN + call


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    renderer = renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")
    engines = lambda: [ScriptedEngine("double", saying(renderer, reply_to), pace=Pace(chunk_tokens=9))]  # noqa: E731
    with bench(renderer, tmp_path_factory.mktemp("replayed"), engines, SETTINGS) as made:
        yield made


def send(client: Any, record: dict[str, Any], url: str, key: str) -> Any:
    """Send a recorded request to `url`, with the headers that it had."""
    headers = {name: value for name, value in record["headers"].items() if name not in OURS}
    headers["authorization"] = f"Bearer {key}"
    path = record["path"].removeprefix(f"/exec/{record['exec_from_path']}")
    return client.post(url + path, headers=headers, content=json.dumps(record["body"]))


def heard(record: dict[str, Any], reply: Any) -> Heard:
    """Return what the official client makes of a reply, which must be what was sampled."""
    wire = wire_for(record["method"], record["path"].partition("?")[0])
    assert wire is not None
    where = (record["harness"], record["scenario"], record["seq"])
    assert reply.status_code == 200, (where, reply.text[:500])
    stream = bool(record["body"].get("stream"))
    found = understood(wire.name, reply.content, reply.headers["content-type"], stream=stream)
    assert found.text.strip() == SPOKEN, where
    tools = wire.parse(record["body"], record["headers"]).tools
    assert [call.arguments for call in found.calls] == ([ARGUMENTS] if tools else []), where
    return found


def test_every_recorded_request_is_answered_by_base_url_and_by_key_alone(shared: Path, running: Bench) -> None:
    """Each is sent both ways, one first and then the other: the second is a retry, and gets the same reply."""
    records = recorded(shared)
    assert len({record["harness"] for record in records}) == 11
    runs = groupby(records, key=lambda record: (record["harness"], record["scenario"], record["exec_from_path"]))

    def replay(number: int, run: list[dict[str, Any]]) -> None:
        name = f"{run[0]['harness']}-{number}"
        opened = running.open(name, harness=run[0]["harness"])
        ways = deque((opened.base_url, running.proxy.url))
        for record in run:
            first, second = (heard(record, send(client, record, url, opened.key)) for url in ways)
            assert first == second
            ways.rotate()
        calls = running.records(name)
        assert 0 < len(calls) <= len(run)
        assert [refusal(call) for call in calls] == [None] * len(calls)

    # No certificates are read for it, and connections are kept: that is half of what a request costs here.
    with httpx.Client(verify=False, timeout=120) as client, ThreadPoolExecutor(4) as threads:
        list(threads.map(replay, *zip(*((at, list(run)) for at, (_, run) in enumerate(runs)), strict=True)))
