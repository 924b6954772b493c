"""A server on a socket of this process, within its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn

from gyre.errors import InputError

from .bounded_http import BoundedHttp
from .inherited_socket import listening

_BACKLOG: Final = 2048
_AT_ONCE: Final = 64  # asyncio takes so many connections in a row, and without descriptors logs a fault for each
_STUCK_S: Final = 600  # a client that takes nothing of a reply for so long, or whose machine is gone, is let go
_PROBES: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 4))
_GRACE_S: Final = 2  # for replies that were told to end


class _NoBrokenOffReplies(logging.Filter):
    """A reply that breaks off without an end is how a client is told that there is none: no fault of a server's."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.getMessage() != "ASGI callable returned without completing response."


_NO_BROKEN_OFF_REPLIES: Final = _NoBrokenOffReplies()


class _Server(uvicorn.Server):
    """uvicorn without its own handling of signals, which are the command's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listener:
    """Serves an ASGI application from `start` to `stop`."""

    def __init__(self, app: Any, host: str, port: int, descriptor: int | None = None) -> None:
        """Bind to the address, where port 0 takes a free one; or take over a descriptor that listens already.

        Raises:
            InputError: it cannot be had.
        """
        self._socket = _bound(host, port) if descriptor is None else listening(descriptor)
        _let_go_of_the_stuck(self._socket)
        config = uvicorn.Config(
            app,
            http=BoundedHttp,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_GRACE_S,
            backlog=_AT_ONCE,
        )
        logging.getLogger("uvicorn.error").addFilter(_NO_BROKEN_OFF_REPLIES)
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None
        self.host = host if descriptor is None else str(self._socket.getsockname()[0])

    @property
    def port(self) -> int:
        """The port."""
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """The address, as clients on this machine have it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Begin to serve."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            await asyncio.sleep(0.01)
            if self._task.done():
                await self._task
        self._socket.listen(_BACKLOG)

    async def stop(self) -> None:
        """Take no more connections, let what is going out go out, and close."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._socket.close()


def _let_go_of_the_stuck(listening: socket.socket) -> None:
    """Let the system end connections that nothing is heard of; those that are accepted inherit it."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_PROBES, ("TCP_USER_TIMEOUT", round(1000 * _STUCK_S))):
        if hasattr(socket, name):  # not every system has them all
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)  # or the next one to be bound could have the same address
    except OSError as error:
        bound.close()
        remedy = "give another port, or 0 for any" if error.errno == errno.EADDRINUSE else "give another address"
        raise InputError(f"{host}:{port}: cannot listen there ({error.strerror}); {remedy}") from error
    return bound
