"""The processes that are measured: gyre's proxy, LiteLLM's and sglang-router, each in front of one engine double."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy_load_engine import MODEL

from gyre.backends.engines.launching import free_port

HERE: Final = Path(__file__).parent
GYRE: Final = (sys.executable, "-c", "from gyre.cli import main; main()", "proxy")
_START_S: Final = 180.0
_LITELLM: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where things lie."""

    tokenizer: Path
    scratch: Path  # an empty folder
    litellm: Path | None = None  # its program; None: not measured
    router: Path | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What the load goes to: an address, and the process whose CPU time counts."""

    url: str
    pid: int


Server = Callable[[Place, str], Iterator[Target]]  # of the place and the engine's address


@contextmanager
def process(command: Sequence[str | Path], log: Path, ready: str) -> Iterator[int]:
    """Run a command until the block ends; `ready` is an address that answers once it serves."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **_LITELLM}
    with log.open("ab") as out:
        running = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=environment
        )
    try:
        end = time.monotonic() + _START_S
        while not _answers(ready):
            if running.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        yield running.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@contextmanager
def engine(place: Place, chunks_per_s: float) -> Iterator[Target]:
    """The double."""
    port = free_port()
    command = [sys.executable, HERE / "proxy_load_engine.py", f"--port={port}", f"--tokenizer={place.tokenizer}"]
    url = f"http://127.0.0.1:{port}"
    with process([*command, f"--chunks-per-s={chunks_per_s}"], place.scratch / "engine.log", f"{url}/v1/models") as pid:
        yield Target(url, pid)


@contextmanager
def direct(place: Place, engine_url: str) -> Iterator[Target]:
    """Nothing in between: what the double and the load themselves add."""
    yield Target(engine_url, os.getpid())


@contextmanager
def gyre(place: Place, engine_url: str) -> Iterator[Target]:
    """gyre's proxy, that records every call."""
    port, admin = free_port(), free_port()
    command = [
        *(*GYRE, "--quiet", "--open", f"--engine={engine_url}", f"--tokenizer={place.tokenizer}"),
        *(f"--out={place.scratch / f'calls{port}'}", f"--port={port}", f"--admin-port={admin}"),
        "--max-new-tokens=1000000",
    ]
    with process(command, place.scratch / "gyre.log", f"http://127.0.0.1:{admin}/health") as pid:
        yield Target(f"http://127.0.0.1:{port}", pid)


@contextmanager
def litellm(place: Place, engine_url: str) -> Iterator[Target]:
    """LiteLLM's proxy, without keys, database or callbacks."""
    port, settings = free_port(), place.scratch / "litellm.yaml"
    settings.write_text(
        f"model_list:\n  - model_name: {MODEL}\n    litellm_params:\n      model: openai/{MODEL}\n"
        f"      api_base: {engine_url}/v1\n      api_key: none\n"
    )
    assert place.litellm is not None
    command = [place.litellm, f"--config={settings}", f"--port={port}", "--host=127.0.0.1", "--num_workers=1"]
    url = f"http://127.0.0.1:{port}"
    with process(command, place.scratch / "litellm.log", f"{url}/health/liveliness") as pid:
        yield Target(url, pid)


@contextmanager
def router(place: Place, engine_url: str) -> Iterator[Target]:
    """sglang-router, which passes chat completions on as they are."""
    port, metrics = free_port(), free_port()
    assert place.router is not None
    command = [
        *(place.router, "launch", f"--worker-urls={engine_url}", "--host=127.0.0.1", f"--port={port}"),
        *("--policy=cache_aware", f"--prometheus-port={metrics}", "--log-level=warn"),
    ]
    url = f"http://127.0.0.1:{port}"
    with process(command, place.scratch / "router.log", f"{url}/readiness") as pid:
        yield Target(url, pid)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
