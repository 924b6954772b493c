"""Processes that read large bodies.

Reading JSON holds the interpreter's lock from its first byte to its last, so that a thread beside the event loop helps
nothing. What a worker gives back is the request alone, without what no field of it holds. It imports no more than the
protocols; it ends when its input does, and so with the proxy however that ends.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import BinaryIO, Final

import orjson

from .conversation import Request
from .read_request import read_request
from .wire import BadRequestError

_SLICE_BYTES: Final = 1 << 18
_LENGTH_BYTES: Final = 8
_RETIRING_BYTES: Final = 8 << 20  # after such a body a worker ends, and its memory is the system's again


class BodyWorkerLostError(Exception):
    """A worker ended before it answered."""


class BodyWorkers:
    """At most so many processes, started when they are first needed."""

    def __init__(self, most: int) -> None:
        self._room = asyncio.Semaphore(most)
        self._idle: list[asyncio.subprocess.Process] = []

    async def read(self, wire: str, raw: bytes, headers: Mapping[str, str]) -> tuple[Request, str]:
        """Return what `read_request` does.

        Raises:
            BadRequestError: the body cannot be understood.
            BodyWorkerLostError: the worker was killed, for want of memory most likely.
        """
        async with self._room:
            try:
                worker = self._alive() or await _started()
                try:
                    answer = await _asked(worker, wire, raw, headers)
                except BaseException:
                    _kill(worker)
                    raise
            except (OSError, asyncio.IncompleteReadError) as error:
                raise BodyWorkerLostError(repr(error)) from error
            if len(raw) < _RETIRING_BYTES:
                self._idle.append(worker)
            else:
                await _end(worker)
        if isinstance(answer, str):
            raise BadRequestError(answer)
        return answer

    def _alive(self) -> asyncio.subprocess.Process | None:
        self._idle = [worker for worker in self._idle if worker.returncode is None]
        return self._idle.pop() if self._idle else None

    async def close(self) -> None:
        """End those that have nothing to do; the others end with what they do."""
        while self._idle:
            await _end(self._idle.pop())


async def _started() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__),  # -P: no file of the folder that it runs in stands in for a module
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_SLICE_BYTES,
    )


def _kill(worker: asyncio.subprocess.Process) -> None:
    if worker.returncode is None:
        with suppress(ProcessLookupError):
            worker.kill()


async def _end(worker: asyncio.subprocess.Process) -> None:
    _kill(worker)
    await worker.wait()


async def _asked(
    worker: asyncio.subprocess.Process, wire: str, raw: bytes, headers: Mapping[str, str]
) -> tuple[Request, str] | str:
    assert worker.stdin is not None
    assert worker.stdout is not None
    head = orjson.dumps({"wire": wire, "headers": dict(headers), "bytes": len(raw)})
    worker.stdin.write(head + b"\n")
    for at in range(0, len(raw), _SLICE_BYTES):
        worker.stdin.write(raw[at : at + _SLICE_BYTES])
        await worker.stdin.drain()
    size = int.from_bytes(await worker.stdout.readexactly(_LENGTH_BYTES))
    answer: tuple[Request, str] | str = pickle.loads(await worker.stdout.readexactly(size))
    return answer


def _serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer until the input ends: a line of JSON and the body that it tells of, for a length and a pickle."""
    while line := source.readline():
        asked = orjson.loads(line)
        answer: tuple[Request, str] | str
        try:
            answer = read_request(asked["wire"], source.read(asked["bytes"]), asked["headers"])
        except BadRequestError as error:
            answer = str(error)
        except RecursionError:
            answer = "the body is nested too deeply"
        data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        target.write(len(data).to_bytes(_LENGTH_BYTES))
        target.write(data)
        target.flush()


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the proxy's
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints does not answer
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()
