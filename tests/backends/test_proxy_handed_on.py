"""A socket that a supervisor holds while `gyre proxy` is killed and started again: clients wait, none is refused."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

httpx = pytest.importorskip("httpx")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import renderer_of  # noqa: E402
from proxy_process import Running  # noqa: E402

from gyre.backends.proxy.inherited_socket import inherited_descriptor, listening  # noqa: E402
from gyre.errors import InputError  # noqa: E402

# What a supervisor does between fork and exec: the socket becomes descriptor 3, and the process is named.
HANDING_ON: Final = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.set_inheritable(3, True); "
    "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); "
    "os.execv(sys.executable, [sys.executable, '-c', 'from gyre.cli import main; main()', *sys.argv[2:]])"
)


@contextmanager
def supervised(held: socket.socket, *options: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-c", HANDING_ON, str(held.fileno()), "proxy", "--engine", "http://127.0.0.1:9", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[held.fileno()],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        yield Running(process)
    finally:
        process.kill()
        process.communicate()


def test_clients_wait_where_a_supervisor_holds_the_socket(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer"
    renderer_of(tokenizer)
    options = ("--tokenizer", str(tokenizer), "--out", str(tmp_path / "calls"), "--execution", "task=sk-task")
    with socket.create_server(("127.0.0.1", 0)) as held, ThreadPoolExecutor(1) as threads:
        url = f"http://127.0.0.1:{held.getsockname()[1]}"

        def models() -> int:
            answer = httpx.get(f"{url}/x/task/v1/models", headers={"x-api-key": "sk-task"}, timeout=120)
            return int(answer.status_code)

        with supervised(held, *options) as running:
            assert running.url("execution task") == f"{url}/x/task"
            assert models() == 200
            running.process.send_signal(signal.SIGKILL)
            running.process.wait(60)
        waiting = threads.submit(models)  # while nobody listens
        with supervised(held, *options) as running:
            assert waiting.result(120) == 200


def test_what_is_handed_on_must_be_one_socket_that_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def given(count: str, owner: int) -> int | None:
        monkeypatch.setenv("LISTEN_FDS", count)
        monkeypatch.setenv("LISTEN_PID", str(owner))
        found = inherited_descriptor()
        assert "LISTEN_FDS" not in os.environ
        return found

    assert given("1", os.getpid()) == 3
    assert given("1", os.getpid() + 1) is None  # meant for another process
    assert given("0", os.getpid()) is None
    with pytest.raises(InputError, match="hand on one socket"):
        given("2", os.getpid())
    with (tmp_path / "file").open("w") as file, pytest.raises(InputError, match="no socket"):
        listening(file.fileno())
    with socket.socket() as closed, pytest.raises(InputError, match="does not listen"):
        listening(closed.fileno())
