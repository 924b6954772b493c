"""Starting an SGLang server as a process of this machine, on CPU or GPU, and ending it with everything it started."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

_REAPING_S: Final = 2.0  # for killed children to be gone; an orphan that nobody reaps stays for ever
_STUBS: Final = Path(__file__).parent / "cpu_stubs"
_KEYED: Final = "gyre.backends.engines.keyed_sglang"

# Without these a server on CPU looks for kernels that are not there, or keeps a core busy while idle.
_CPU_FLAGS: Final = (
    "--device=cpu",
    "--dtype=float32",
    "--attention-backend=torch_native",
    "--sampling-backend=pytorch",
    "--disable-cuda-graph",
    "--disable-overlap-schedule",
    "--sleep-on-idle",
)


class LaunchError(Exception):
    """The server did not come up. The message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What to start."""

    model: Path  # folder that Hugging Face's loaders read
    log: Path  # what the server writes goes to its end
    port: int = 0  # 0: any that is free
    host: str = "127.0.0.1"
    cpu: bool = False
    version: int = 0  # of the weights in `model`
    flags: Sequence[str] = ()  # more for SGLang, such as "--tp=2"
    cpus: Sequence[int] = ()  # that it may use; none: all
    environment: Mapping[str, str] | None = None  # more variables
    key: str = field(default="", repr=False)  # that every request but /health must bear; "": none


@dataclass(frozen=True, slots=True)
class Server:
    """A server that was started. It and its children are one process group, whose id is `process.pid`."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def wait_ready(self, timeout_s: float = 600.0) -> None:
        """Block until the server answers `/health`.

        Raises:
            LaunchError: it ended, or the time is over; it is killed then.
        """
        end = time.monotonic() + timeout_s
        while self.process.poll() is None and time.monotonic() < end:
            if _answers(f"{self.url}/health"):
                return
            time.sleep(0.3)
        state = "ended" if self.process.poll() is not None else f"was not ready after {timeout_s:.0f} s"
        self.end(signal.SIGKILL)
        raise LaunchError(f"the server at {self.url} {state}; its log {self.log} ends:\n{_tail(self.log)}")

    def end(self, by: signal.Signals = signal.SIGTERM, timeout_s: float = 20.0) -> None:
        """Signal the whole group and wait; what is left after `timeout_s` is killed. Ended already: nothing happens."""
        _signal_group(self.process.pid, by)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        # The group outlives its leader where a child does: schedulers can, and they hold the GPU's memory.
        _signal_group(self.process.pid, signal.SIGKILL)
        self.process.wait()
        end = time.monotonic() + _REAPING_S
        while _signal_group(self.process.pid, 0) and time.monotonic() < end:
            time.sleep(0.02)


def start_sglang(settings: ServerSettings) -> Server:
    """Start a server and return at once; `Server.wait_ready` waits until it serves.

    Where the system has setpriv (util-linux), the server is killed when the thread that started it ends, and so when
    this process is killed. A key is given through a pipe; SGLang writes it to its log, which only this user may read.
    """
    port = settings.port or free_port(settings.host)
    command = [
        *_bound_to_us(),
        *(sys.executable, "-m", _KEYED if settings.key else "sglang.launch_server"),
        *(f"--model-path={settings.model}", f"--host={settings.host}", f"--port={port}"),
        f"--weight-version={settings.version}",
        "--incremental-streaming-output",  # else every chunk repeats the whole reply
        *(_CPU_FLAGS if settings.cpu else ()),
        *settings.flags,
    ]
    with _opened(settings) as log, _pinned(settings.cpus):
        process = subprocess.Popen(
            command,
            env=_environment(settings),
            stdin=subprocess.PIPE if settings.key else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if process.stdin is not None:
        with suppress(BrokenPipeError), process.stdin:  # whoever waits for the server finds that it has ended
            process.stdin.write(settings.key.encode() + b"\n")
    return Server(process, f"http://{settings.host}:{port}", settings.log)


def _opened(settings: ServerSettings) -> IO[bytes]:
    mode = 0o600 if settings.key else 0o666
    return open(settings.log, "ab", opener=lambda path, flags: os.open(path, flags, mode))


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _bound_to_us() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    return () if setpriv is None else (setpriv, "--pdeathsig", "KILL")


@contextmanager
def _pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Let processes that this thread starts use these CPUs only: affinity is a thread's own, and inherited."""
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _environment(settings: ServerSettings) -> dict[str, str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if settings.cpu:
        paths = [str(_STUBS), *filter(None, [environment.get("PYTHONPATH")])]
        environment |= {"SGLANG_USE_CPU_ENGINE": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(paths)}
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment | dict(settings.environment or {})


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _signal_group(group: int, by: int) -> bool:
    """Signal every process of the group; return whether there is one. 0 only asks."""
    try:
        os.killpg(group, by)
    except ProcessLookupError:
        return False
    return True


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
