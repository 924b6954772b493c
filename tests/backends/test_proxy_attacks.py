"""Requests that no harness sends: whatever comes, no 500, no other execution's data, no lost record."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import Bench, bench, renderer_of, saying  # noqa: E402

from gyre.backends.engines.engine import EngineInfo  # noqa: E402
from gyre.backends.engines.scripted import ScriptedEngine  # noqa: E402
from gyre.backends.proxy.limits import Bounds  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402

BOUNDS = Bounds(calls_per_s=1e9, calls_burst=10**9, body_s=1.0, body_at_once_bytes=1 << 16, executions=1000)
SMALL = EngineInfo("scripted", kv_tokens=1 << 16, max_running=64, max_context_tokens=2048, version=0)
CHAT, MESSAGES, COUNT, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses"
SECRET = "the other's secret"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    renderer = renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")
    made_settings = ProxySettings(bounds=BOUNDS, keep_alive_s=5.0, linger_s=0.05)
    engines = lambda: [ScriptedEngine("one", saying(renderer, "Hello."), info=SMALL)]  # noqa: E731
    with bench(renderer, tmp_path_factory.mktemp("attacked"), engines, made_settings) as made:
        made.opened, made.other = made.open("mine"), made.open("other")  # type: ignore[attr-defined]
        asked = {"model": "m", "messages": [{"role": "user", "content": SECRET}]}
        headers = {"x-api-key": made.other.key}  # type: ignore[attr-defined]
        assert httpx.post(f"{made.other.base_url}{CHAT}", json=asked, headers=headers, timeout=60).status_code == 200  # type: ignore[attr-defined]
        yield made
        assert SECRET in renderer.tokenizer.decode(made.records("other")[0].input_ids.tolist())


def raw(made: Bench, data: bytes, *, half: bool = False, wait_s: float = 3.0) -> bytes:
    """Send bytes as they are and return what comes back until the server closes or falls silent."""
    host, port = made.proxy.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as link:
        link.sendall(data)
        if half:
            link.shutdown(socket.SHUT_WR)
        link.settimeout(wait_s)
        got = b""
        try:
            while part := link.recv(65536):
                got += part
                if got.endswith(b"0\r\n\r\n") or (b"content-length" in got.lower() and got.endswith(b"}")):
                    break
        except TimeoutError:
            pass
        except ConnectionResetError:
            pass
        return got


def head(made: Bench, method: str = "POST", path: str = CHAT, *more: str, key: str | None = None) -> bytes:
    key = made.opened.key if key is None else key  # type: ignore[attr-defined]
    lines = [f"{method} {path} HTTP/1.1", "host: x", f"authorization: Bearer {key}", *more, "", ""]
    return "\r\n".join(lines).encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def alive(made: Bench) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "still there?"}]}
    headers = {"x-api-key": made.opened.key}  # type: ignore[attr-defined]
    assert httpx.post(f"{made.opened.base_url}{CHAT}", json=body, headers=headers, timeout=30).status_code == 200  # type: ignore[attr-defined]


def deep(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


BODIES = [
    b"", b"null", b"[]", b'"x"', b"{", b"\xff\xfe{}", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": ' + b"9" * 5000 + b"}",
    deep(900), deep(100_000), b"[" * 200_000,
    b'{"messages":[{"role":"user","content":"a"}],"messages":[]}',
    b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    b'{"model":"\\ud800","messages":[{"role":"user","content":"x"}]}',
    b'{"messages":[{"role":"\\u0000","content":"x"}]}',
    b'{"messages":[{"role":"user","content":"\\u0000\\u2028"}],"max_tokens":1e300,"tools":[]}',
    b'{"messages":[{"role":"user","content":"x"}],"max_tokens":123456789012345678901234567890}',
    b'{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":'
    + deep(500) + b"}}]}",
    b'{"messages":[{"role":"user","content":"x"}],"stop":["' + b"a" * 100_000 + b'"]}',
    b'{"messages":[{"role":"user","content":[' + b'{"type":"text","text":""},' * 5000 + b"1]}]}",
    b'{"input":[{"type":"function_call","name":"f","arguments":' + deep(300) + b"}]}",
    b'{"input":[{"type":"function_call","name":"f","arguments":"' + deep(5000).replace(b'"', b'\\"') + b'"}]}',
    b'{"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"'
    + deep(5000).replace(b'"', b'\\"')
    + b'"}}]}]}',
    b'{"messages":[{"role":"user","content":"x"}],"tool_choice":"required","tools":[{"type":"function","function":'
    b'{"name":"f","parameters":{"type":7,"$ref":"#/nowhere","anyOf":3}}}]}',
]  # fmt: skip


@pytest.mark.parametrize("path", [CHAT, MESSAGES, COUNT, RESPONSES])
def test_bodies_made_to_break_it(running: Bench, path: str) -> None:
    headers = {"x-api-key": running.opened.key, "content-type": "application/json"}  # type: ignore[attr-defined]
    with httpx.Client(base_url=running.opened.base_url, headers=headers, timeout=20) as client:  # type: ignore[attr-defined]
        for body in BODIES:
            answer = client.post(path, content=body)
            assert answer.status_code in (200, 400), (answer.status_code, body[:80])
            assert SECRET not in answer.text
    alive(running)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_ADMIN = st.dictionaries(
    st.sampled_from(["id", "key", "group", "harness", "task", "limits", "score", "outcome", "x"]), _VALUES, max_size=4
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS"]),
    st.sampled_from(
        [
            "/executions",
            "/executions/none/end",
            "/executions/%2e%2e/end",
            "/executions//end",
            "/metrics",
            "/health",
            "/x",
        ]
    ),
    _ADMIN.map(json.dumps).map(str.encode) | st.binary(max_size=20) | st.sampled_from(BODIES),
)
@example("POST", "/executions", b'{"limits": {"steps": 1e400}}')
@example("POST", "/executions", b'{"limits": {"seconds": 1e308}}')
@example("POST", "/executions", b'{"limits": {"seconds": Infinity}}')
@example("POST", "/executions", b'{"limits": {"tokens": 99999999999999999999999999999}}')
@example("POST", "/executions", b'{"task": "\\ud800"}')
def test_the_admin_side_never_fails(running: Bench, method: str, path: str, body: bytes) -> None:
    with httpx.Client(base_url=running.proxy.admin_url, timeout=20) as client:
        answer = client.request(method, path, content=body)
        assert answer.status_code < 500, (answer.status_code, body[:80])
        listed = client.get("/executions")
        assert listed.status_code == 200
        for one in listed.json()["executions"]:
            if one["id"] not in ("mine", "other"):
                assert client.post(f"/executions/{one['id']}/end").status_code == 200


def test_no_page_of_a_browser_reaches_the_admin_side(running: Bench) -> None:
    headers = {
        "origin": "http://elsewhere.example",
        "content-type": "text/plain",
    }  # what a page may send without asking
    answer = httpx.post(f"{running.proxy.admin_url}/executions", content='{"id": "forged"}', headers=headers)
    assert answer.status_code == 403
    listed = httpx.get(f"{running.proxy.admin_url}/executions").json()["executions"]
    assert "forged" not in {one["id"] for one in listed}


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "PATCH", "XYZ"])
def test_other_methods_get_their_refusals(running: Bench, method: str) -> None:
    for path in (CHAT, MESSAGES, COUNT, RESPONSES, "/v1/models", "/", "/v1"):
        answer = raw(running, head(running, method, path, "content-length: 0", "connection: close"))
        assert status(answer) in (200, 400, 404, 405), (path, answer[:80])


PATHS = [
    ("/x/mine/../other/v1/models", 404), ("/x/other/v1/models", 403), ("/x/other%2fv1/models", 403),
    ("/x/mine%2f..%2fother/v1/models", 404), ("/x/%6fther/v1/models", 403), ("/x/%2e%2e/x/other/v1/models", 404),
    ("/x/mine/x/other/v1/models", 200), ("/x/mine/v1/models/", 200), ("/x/mine/v1//models", 200),
    ("/x//v1/models", 200), ("/v1/models?x=/x/other", 200), ("/x/mine/v1/models/../../../other", 404),
    ("/x/" + "a" * 5000 + "/v1/models", 403), ("/x/mine%00/v1/models", 403), ("/x/Mine/v1/models", 403),
]  # fmt: skip


@pytest.mark.parametrize(("path", "expected"), PATHS)
def test_no_path_leads_into_another_execution(running: Bench, path: str, expected: int) -> None:
    answer = raw(running, head(running, "GET", path, "connection: close"))
    assert status(answer) == expected, answer[:200]
    assert SECRET.encode() not in answer


BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()


def test_chunked_expected_and_pipelined_requests_are_answered(running: Bench) -> None:
    pieces = b"".join(b"%x\r\n%b\r\n" % (1, BODY[i : i + 1]) for i in range(len(BODY))) + b"0\r\n\r\n"
    chunked = raw(running, head(running, "POST", CHAT, "transfer-encoding: chunked", "connection: close") + pieces)
    assert status(chunked) == 200
    expected = head(running, "POST", CHAT, f"content-length: {len(BODY)}", "expect: 100-continue", "connection: close")
    assert b"200 OK" in raw(running, expected + BODY)
    one = head(running, "POST", CHAT, f"content-length: {len(BODY)}") + BODY
    last = head(running, "POST", CHAT, f"content-length: {len(BODY)}", "connection: close") + BODY
    host, port = running.proxy.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as link:
        link.sendall(one * 3 + last)
        got = b""
        while part := link.recv(65536):
            got += part
    assert got.count(b"HTTP/1.1 200 OK") == 4


@pytest.mark.parametrize(
    "more",
    [
        ("content-length: 5", "transfer-encoding: chunked"),
        ("content-length: 5", "content-length: 6"),
        ("content-length: -1",),
        ("content-length: 99999999999999999999",),
        ("content-length: x",),
        ("transfer-encoding: gzip, chunked",),
        ("x-y: " + "z" * 100_000,),
    ],
)
def test_lengths_that_contradict_each_other_are_no_way_in(running: Bench, more: tuple[str, ...]) -> None:
    smuggled = head(running, "GET", "/x/other/v1/models", key="wrong")
    answer = raw(running, head(running, "POST", CHAT, *more) + b"0\r\n\r\n" + smuggled, wait_s=1.5)
    assert status(answer) in (0, 400, 401, 408, 413, 431), answer[:200]
    assert b" 500 " not in answer
    alive(running)


def test_a_body_that_never_ends_and_a_client_that_half_closes(running: Bench) -> None:
    """A client that closes its sending side counts as gone: it cannot be told from one that has left."""
    slow = raw(running, head(running, "POST", CHAT, "content-length: 1000") + b'{"a"', wait_s=4)
    assert status(slow) == 408
    before = len(running.records("mine"))
    raw(running, head(running, "POST", CHAT, f"content-length: {len(BODY)}") + BODY, half=True, wait_s=1)
    raw(running, head(running, "POST", CHAT, "content-length: 1000") + b"{", half=True, wait_s=1)
    alive(running)
    assert len(running.records("mine")) >= before


def test_thousands_of_executions(running: Bench) -> None:
    """As many as may be; the next is refused in words, and the first still answers at once."""
    names = [f"many-{number}" for number in range(BOUNDS.executions - 2)]

    async def open_all() -> float:
        start = time.perf_counter()
        for name in names:
            running.proxy.open_execution(name)
        return time.perf_counter() - start

    running.run(open_all())
    refused = httpx.post(f"{running.proxy.admin_url}/executions", json={"id": "one-more"}, timeout=20)
    assert (refused.status_code, "as many as may be" in refused.json()["error"]) == (409, True)
    alive(running)

    async def end_all() -> None:
        for name in names:
            await running.proxy.end_execution(name)

    running.submit(end_all()).result(120)
    alive(running)
