"""`gyre proxy` as a process: as a user starts it, or forked from one that has imported everything, which is quicker."""

from __future__ import annotations

import multiprocessing
import operator
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from typing import IO, Any, Final, Protocol

GYRE: Final = (sys.executable, "-c", "from gyre.cli import main; main()")
_ADMIN_KEY: Final = "admin secret"
_PRELOADED: Final = [
    "gyre.cli",
    "gyre.backends.proxy.proxy",
    "gyre.backends.proxy.tokens",
    "gyre.backends.engines.sglang",
]
_PARSERS: Final = ["sglang.srt.function_call.function_call_parser", "sglang.srt.parser.reasoning_parser"]


class Process(Protocol):
    """What tests ask of a process; the rest is as with `subprocess.Popen`."""

    stdout: IO[str]
    stderr: IO[str]

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int) -> None: ...
    def communicate(self, *, timeout: float | None = None) -> tuple[str, str]: ...


class Running:
    """A `gyre proxy` that runs."""

    def __init__(self, process: Any) -> None:
        self.process: Process = process
        self.said = ""

    def url(self, what: str) -> str:
        """The address that it printed after `what`."""
        while (found := re.search(rf"{what}: (http://\S+)", self.said)) is None:
            line = self.process.stdout.readline()
            assert line, (self.said, self.process.stderr.read())
            self.said += line
        return found[1]

    def end(self) -> str:
        """Press Ctrl-C; return what it logged."""
        self.process.send_signal(signal.SIGINT)
        _, logged = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, logged
        return logged


class Forked:
    """A process of the fork server, with the pipes of a `subprocess.Popen`."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)  # heeded when the server starts
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        with os.fdopen(out_end, "wb"), os.fdopen(err_end, "wb"):  # this side's copies
            ends = _Descriptor(out_end), _Descriptor(err_end)
            self._process: BaseProcess = context.Process(target=_gyre, args=(arguments, *ends), daemon=True)
            self._process.start()
        self.stdout, self.stderr = os.fdopen(out, "r"), os.fdopen(err, "r")

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("gyre", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def communicate(self, *, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end and return what it still said; that must fit into a pipe."""
        self.wait(timeout)
        said = self.stdout.read(), self.stderr.read()
        self.stdout.close()
        self.stderr.close()
        return said


class _Descriptor:
    """A file descriptor that arrives in the child as a number of its own."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.methodcaller("detach"), (DupFd(self._number),)


def _gyre(arguments: tuple[str, ...], out: int, err: int) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.update(OMP_NUM_THREADS="1", GYRE_ADMIN_KEY=_ADMIN_KEY)
    from gyre.cli import main

    main(list(arguments))


def _popen(arguments: tuple[str, ...]) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GYRE_ADMIN_KEY": _ADMIN_KEY}
    return subprocess.Popen(
        [*GYRE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


@contextmanager
def proxy(*options: str, forked: bool = True) -> Iterator[Running]:
    """Run `gyre proxy` on a free port unless `options` name one; it is killed at the end where it still runs."""
    arguments = ("proxy", "--port", "0", *options)
    running = Running(Forked(arguments) if forked else _popen(arguments))
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.communicate()
