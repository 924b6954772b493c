"""Connections that are slow, stuck, half made or far too many hold up nobody, and none of them for ever."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import Bench, bench, renderer_of, saying  # noqa: E402

from gyre.backends.engines.scripted import Pace, ScriptedEngine  # noqa: E402
from gyre.backends.proxy import bounded_http, listener  # noqa: E402
from gyre.backends.proxy.bounded_http import BoundedHttp  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}'
HEAD_S = 0.4
STUCK_S = 2.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    renderer = renderer_of(tmp_path_factory.getbasetemp() / "proxy-tokenizer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoundedHttp, "head_s", HEAD_S)
        patch.setattr(listener, "_STUCK_S", STUCK_S)
        engines = lambda: [ScriptedEngine("one", saying(renderer, "Once more, and more. " * 20))]  # noqa: E731
        settings = ProxySettings(keep_alive_s=0.2, linger_s=0.1, replay_s=0.0)
        with bench(renderer, tmp_path_factory.mktemp("connections"), engines, settings) as made:
            made.opened = made.open("mine")  # type: ignore[attr-defined]
            yield made


def connect(running: Bench, receive_bytes: int = 0) -> socket.socket:
    host, port = running.proxy.url.removeprefix("http://").split(":")
    link = socket.socket()
    if receive_bytes:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    link.settimeout(60)
    link.connect((host, int(port)))
    return link


def request(running: Bench, body: bytes = BODY, *more: str) -> bytes:
    key = running.opened.key  # type: ignore[attr-defined]
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        "host: x",
        f"x-api-key: {key}",
        f"content-length: {len(body)}",
        *more,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def rest_of(link: socket.socket) -> bytes:
    """What comes until the other side closes."""
    got = b""
    while part := link.recv(1 << 16):
        got += part
    return got


def alive(running: Bench) -> None:
    with connect(running) as link:
        link.sendall(request(running, BODY, "connection: close"))
        assert b"[DONE]" in rest_of(link)


def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(running: Bench) -> None:
    with connect(running) as silent, connect(running) as slow, connect(running) as again:
        slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost:")
        again.sendall(b"GET /api/hello HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = b""
        while not answer.endswith(b"{}"):
            answer += again.recv(1 << 16)
        again.sendall(b"GET /api/hello")  # the second head of a connection
        assert [rest_of(link) for link in (silent, slow, again)] == [b"", b"", b""]
    alive(running)


def test_a_head_has_a_bound(running: Bench) -> None:
    """uvicorn's parser in C takes headers without end."""
    with connect(running) as link:
        link.sendall(b"GET /api/hello HTTP/1.1\r\n")
        with pytest.raises(OSError, match=r"reset|Broken pipe"):  # noqa: PT012
            for number in range(1_000_000):
                link.sendall(b"x-%d: %s\r\n" % (number, b"a" * 1000))
    with connect(running) as link:
        link.sendall(b"GET /api/hello HTTP/1.1\r\nx: " + b"a" * (BoundedHttp.head_bytes + 1000))
        assert rest_of(link).startswith(b"HTTP/1.1 431 ")
    alive(running)


def test_a_reply_is_not_cut_by_the_half_of_a_head_behind_its_request(running: Bench) -> None:
    running.engines[0].pace = Pace(tokens_per_s=100.0)
    try:
        with connect(running) as link:
            link.sendall(request(running) + b"GET /api/hello HTTP/1.1\r\n")
            got, began = b"", time.monotonic()
            while b"[DONE]" not in got:
                got += link.recv(1 << 16)
            assert time.monotonic() - began > 2 * HEAD_S  # so that it could have been
            assert rest_of(link) in (b"", b"0\r\n\r\n")  # now it is late
    finally:
        running.engines[0].pace = Pace()


def test_who_leaves_before_the_request_is_whole_is_no_fault_of_the_proxys(
    running: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def refusals() -> bytes:
        return b"".join(line for line in running.proxy.metrics.text().splitlines() if b"refusals_total" in line)

    before = refusals()
    for half in (True, False):
        with connect(running) as link:
            link.sendall(request(running)[:-5])
            if half:
                link.shutdown(socket.SHUT_WR)
                assert rest_of(link) == b""
    alive(running)
    assert refusals() == before
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system ends no stuck connections")
def test_who_takes_nothing_of_a_reply_is_let_go(running: Bench) -> None:
    engine = running.engines[0]
    script = engine._script
    engine._script = saying(running.renderer, "Nobody reads this. " * 20_000)
    try:
        with connect(running, receive_bytes=4096) as link:
            link.sendall(request(running, BODY.replace(b"hi", b"all of it")))
            waiting = lambda: len(running.proxy._listener._server.server_state.tasks)  # noqa: E731
            while not waiting():
                time.sleep(0.01)
            until = time.monotonic() + 60
            while waiting() and time.monotonic() < until:
                time.sleep(0.1)
            assert not waiting()
    finally:
        engine._script = script
    alive(running)


def test_hundreds_that_say_nothing_are_in_nobodys_way(running: Bench) -> None:
    with ExitStack() as stack:
        links = [stack.enter_context(connect(running)) for _ in range(400)]
        alive(running)
        assert all(rest_of(link) == b"" for link in links)


def test_clients_beyond_what_the_system_lets_open_are_turned_away(
    running: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before descriptors run out: engines could not be reached then, and asyncio logs without end."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert bounded_http.most_connections() < soft
    monkeypatch.setattr(bounded_http, "most_connections", lambda: 5)
    with ExitStack() as stack:
        links = [stack.enter_context(connect(running)) for _ in range(40)]
        answers = [rest_of(link) for link in links]
    assert sum(answer.startswith(b"HTTP/1.1 503 ") for answer in answers) >= 35
    assert answers.count(b"") >= 5  # too late with their heads
    assert sum("turned away" in record.message for record in caplog.records) == 1
    alive(running)


def test_a_large_body_is_nothing_for_the_admin_side(running: Bench) -> None:
    answer: Any = httpx.post(f"{running.proxy.admin_url}/executions", content=b" " * (2 << 20))
    assert (answer.status_code, "more than" in answer.json()["error"]) == (413, True)
