"""Processes that die: the proxy by kill -9, every engine at once; what the log holds then, and what clients notice."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

httpx = pytest.importorskip("httpx")
openai = pytest.importorskip("openai", reason="a real client of the chat protocol")
for package in ("aiohttp", "prometheus_client", "starlette", "transformers", "uvicorn"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from proxy_bench import renderer_of  # noqa: E402
from proxy_process import Running, proxy  # noqa: E402

from gyre.backends.engines.launching import free_port  # noqa: E402
from gyre.trajectory import CallRecord  # noqa: E402
from gyre.trajectory.call import Finish  # noqa: E402
from gyre.trajectory.call_log import CallLog  # noqa: E402
from gyre.trajectory.check import refusal  # noqa: E402

TOKENS: Final = 120  # of each reply
TOKENS_PER_S: Final = 60.0
KEEP_ALIVE_S: Final = 0.2
PATIENCE_S: Final = 1.5  # in which a client must hear something
GONE_S: Final = 4.0  # more than that


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.getbasetemp() / "proxy-tokenizer"
    renderer_of(folder)
    return folder


@contextmanager
def engine(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A double in a process of its own, that counts: each token is the number of tokens before it, modulo 256."""
    command = [sys.executable, "-m", "gyre.backends.engines.scripted_server", f"--port={port}"]
    process = subprocess.Popen([*command, f"--tokens-per-s={TOKENS_PER_S}"], stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def options(port: int, listen: int, tokenizer: Path, out: Path) -> tuple[str, ...]:
    return (
        *("--engine", f"http://127.0.0.1:{port}", "--tokenizer", str(tokenizer), "--out", str(out)),
        *("--port", str(listen), "--execution", "task=sk-task", "--keep-alive", str(KEEP_ALIVE_S), "--quiet"),
    )


def ready(running: Running) -> str:
    """The proxy's address, once it listens."""
    url = running.url("execution task")
    running.url("admin and metrics")
    return url


def client(url: str, **more: Any) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="sk-task", **more)


def records(out: Path) -> list[CallRecord]:
    with CallLog(out / "proxy.calls") as log:
        return list(log.calls("task"))


def check_counted(record: CallRecord) -> None:
    """The reply is what one engine would have said that was never lost."""
    assert refusal(record) is None
    start = len(record.input_ids)
    assert record.output_ids.tolist() == [place % 256 for place in range(start, start + TOKENS)]
    assert (record.finish, record.delivered) == (Finish.LENGTH, True)


def until_running(running: Running) -> None:
    """Wait until a call has been generating for a moment."""
    metrics = running.url("admin and metrics")
    headers = {"authorization": "Bearer admin secret"}
    until(lambda: "gyre_proxy_calls_running 1.0" in httpx.get(metrics, headers=headers).text)
    time.sleep(TOKENS / TOKENS_PER_S / 4)


def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_a_proxy_that_is_killed_loses_nothing_that_was_whole(tokenizer: Path, tmp_path: Path) -> None:
    out, listen, port = tmp_path / "calls", free_port(), free_port()
    with engine(port), ThreadPoolExecutor(1) as threads:
        said: list[Any] = [{"role": "user", "content": "Count."}]

        def ask(asking: Any) -> Any:
            done = asking.chat.completions.create(model="m", messages=said, max_tokens=TOKENS)
            return done.choices[0].message.content

        def turn(asking: Any, words: str) -> None:
            said.append({"role": "assistant", "content": ask(asking)})
            said.append({"role": "user", "content": words})

        with proxy(*options(port, listen, tokenizer, out)) as running:
            patient = client(ready(running), max_retries=100, timeout=60)
            turn(patient, "Go on.")
            turn(patient, "And on.")
            waiting = threads.submit(ask, patient)
            until_running(running)
            running.process.kill()
            running.process.wait(60)
        whole = records(out)
        assert len(whole) == 2
        with proxy(*options(port, listen, tokenizer, out)) as running:
            url = ready(running)
            third = waiting.result(60)  # the client came back by itself
            assert len(records(out)) == 3
            assert ask(client(url, timeout=60)) == third  # and again: said anew, from the log or from memory
            assert len(records(out)) == 3
            running.process.kill()
            running.process.wait(60)
        with proxy(*options(port, listen, tokenizer, out)) as running:
            assert ask(client(ready(running), timeout=60)) == third
            running.end()
    every = records(out)
    assert [record.call_id for record in every[:2]] == [record.call_id for record in whole]
    for record in every:
        check_counted(record)
    for before, after in pairwise(every):
        context = np.concatenate((before.input_ids, before.output_ids))
        np.testing.assert_array_equal(after.input_ids[: len(context)], context)


def test_all_engines_gone_for_longer_than_clients_wait(tokenizer: Path, tmp_path: Path) -> None:
    """Once before a reply's first token, and once in its middle."""
    out, port, reached = tmp_path / "calls", free_port(), threading.Event()
    with proxy(*options(port, 0, tokenizer, out)) as running, ThreadPoolExecutor(1) as threads:
        url = ready(running)

        def ask(words: str) -> None:
            messages = [{"role": "user", "content": words}]
            impatient = client(url, max_retries=0, timeout=PATIENCE_S)
            parts = impatient.chat.completions.create(model="m", messages=messages, max_tokens=TOKENS, stream=True)
            finishes = []
            for count, part in enumerate(parts):
                finishes += [choice.finish_reason for choice in part.choices if choice.finish_reason]
                if count == TOKENS // 4:
                    reached.set()
            assert finishes == ["length"]

        early = threads.submit(ask, "Before the first token.")
        time.sleep(GONE_S)
        with engine(port):
            early.result(60)
            reached.clear()
            late = threads.submit(ask, "In the middle.")
            assert reached.wait(60)
        time.sleep(GONE_S)
        with engine(port):
            late.result(60)
        running.end()
    both = records(out)
    assert len(both) == 2
    for record in both:
        check_counted(record)
