"""Runs a command apart: under limits, in a clean environment, and gone as a whole when it ends or is not wanted."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from . import confined
from .isolated_run import Run, Why
from .leftovers import kill_marked
from .limits import Limits
from .stream import Stream

MARK: Final = "GYRE_EVALUATION"  # variable by which processes of one run are found if their parent is killed
_PASSED_ON: Final = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "TZ")
_PATIENCE_S: Final = 10.0  # for the confining process, which needs no more than milliseconds and its own 5 s
_STREAM_PATIENCE_S: Final = 1.0
_MOST_PAUSE_S: Final = 0.05


async def run_isolated(
    argv: Sequence[str],
    *,
    folder: Path,
    scratch: Path,
    limits: Limits,
    env: Mapping[str, str] | None = None,
    stdin: Path | None = None,
) -> Run:
    """Run a command in `folder`, with HOME and TMPDIR in `scratch`, and wait until all of its processes are gone.

    `env` is added to a clean environment. Cancelling it kills the command, and removes `scratch` if need be.

    Raises:
        OSError: the system has no process, pipe or file left, or `folder` or `stdin` is not there.
    """
    return await _Isolated(limits).run(argv, folder, scratch, clean_environment(scratch, env or {}), stdin)


def clean_environment(scratch: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: how programs are found, its own HOME and TMPDIR, and `more`."""
    own = {name: scratch / name.lower() for name in ("HOME", "TMPDIR")}
    for path in own.values():
        path.mkdir(exist_ok=True)
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **passed_on, **{name: str(own[name]) for name in own}, **more}


class _Isolated:
    """One run: the confining process, the socket that keeps it alive, the streams of the command."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._streams: list[Stream] = []
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._writing: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    async def run(
        self, argv: Sequence[str], folder: Path, scratch: Path, env: Mapping[str, str], stdin: Path | None
    ) -> Run:
        mark = uuid.uuid4().hex
        order = {
            "argv": list(argv),
            "env": {**env, MARK: mark},
            "scratch": str(scratch),
            "limits": self._limits.model_dump(),
        }
        report: dict[str, Any] = {}
        try:
            try:
                for _ in range(2):
                    stream, writing = await Stream.open(self._limits.output_bytes, self._limits.flood_bytes, self._stop)
                    self._streams.append(stream)
                    self._writing.append(writing)
                await _to_its_end(asyncio.to_thread(self._start, folder, stdin))
                report = await self._order(order)
            finally:
                self._close()  # whatever happens now, the confining process ends the command
                if self._process is not None:
                    await self._end(self._process, "" if report else mark)
            for stream in self._streams:
                await stream.ended(_STREAM_PATIENCE_S)
        finally:
            for stream in self._streams:
                stream.close()
        return self._run_of(report)

    def _start(self, folder: Path, stdin: Path | None) -> None:
        """Start the confining process. It blocks until that runs, which takes long where many start at once."""
        with open(stdin or os.devnull, "rb") as given:
            self._process = subprocess.Popen(
                # Isolated and without site-packages: nothing that is installed or set can change or slow it.
                [sys.executable, "-I", "-S", confined.__file__, str(self._theirs.fileno())],
                stdin=given,
                stdout=self._writing[0],
                stderr=self._writing[1],
                cwd=folder,
                pass_fds=(self._theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is the asker's to handle
            )

    async def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send the order and wait for the report; empty where none comes in the time that it may take."""
        self._theirs.close()
        for descriptor in self._writing:
            os.close(descriptor)
        self._writing.clear()
        loop = asyncio.get_running_loop()
        received = b""
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(self._limits.wall_s + self._limits.grace_s + _PATIENCE_S):
                await loop.sock_sendall(self._ours, json.dumps(order).encode() + b"\n")
                while part := await loop.sock_recv(self._ours, 65536):
                    received += part
        try:
            return json.loads(received) if received else {}
        except ValueError:  # it died in the middle
            return {}

    def _stop(self) -> None:
        """Let the confining process know that it is enough; its report still comes."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_WR)

    def _close(self) -> None:
        self._ours.close()
        self._theirs.close()
        for descriptor in self._writing:
            os.close(descriptor)
        self._writing.clear()

    async def _end(self, process: subprocess.Popen[bytes], mark: str) -> None:
        """See the confining process off; with a `mark`, what it may have left too."""
        loop = asyncio.get_running_loop()
        patient_until, pause_s = loop.time() + _PATIENCE_S, 0.001
        try:
            while process.poll() is None:
                if loop.time() > patient_until:
                    process.kill()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)
        finally:
            if process.returncode is None:  # we are cancelled once more; it ends by itself, and is still reaped
                loop.run_in_executor(None, process.wait)
        if mark:
            await asyncio.to_thread(kill_marked, f"{MARK}={mark}")

    def _run_of(self, report: dict[str, Any]) -> Run:
        output, errors = self._streams
        if not report:
            return Run(Why.ESCAPED, None, output, errors)
        why = Why(report.pop("why"))
        if why is Why.STOPPED and (output.flooded or errors.flooded):
            why = Why.FLOOD
        return Run(why=why, output=output, errors=errors, **report)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do short work that cannot be broken off, also if we are cancelled meanwhile."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        task.exception()  # seen; that we are cancelled matters more
        raise asyncio.CancelledError
    task.result()
