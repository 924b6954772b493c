"""Servers that cells start, and start again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Protocol

from ..engines.launching import Server, ServerSettings, start_sglang
from ..publishing.weights import Weights


class RunningServer(Protocol):
    """An engine's process."""

    @property
    def url(self) -> str:
        """Where it is reached."""
        ...

    @property
    def key(self) -> str:
        """What requests to it must bear; "" where it asks for none."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it is there no more."""
        ...

    async def end(self) -> None:
        """End it, and whatever it started."""
        ...


Launch = Callable[[Weights], Awaitable[RunningServer]]  # returns when it serves; cancelled or failed, it leaves nothing


class LocalServer:
    """A process of this machine."""

    def __init__(self, server: Server, key: str = "") -> None:
        """Take a server that was started, and the key that it was given."""
        self._server: Final = server
        self.key: Final = key

    @property
    def url(self) -> str:
        """See `RunningServer.url`."""
        return self._server.url

    @property
    def pid(self) -> int:
        """Its process, which leads a group of its own."""
        return self._server.process.pid

    @property
    def ended(self) -> bool:
        """See `RunningServer.ended`."""
        return self._server.process.poll() is not None

    async def end(self) -> None:
        """See `RunningServer.end`. It is killed: what it holds is of no use to anybody."""
        await asyncio.to_thread(self._server.end, signal.SIGKILL)


def local_launch(settings: ServerSettings, *, ready_s: float = 600.0) -> Launch:
    """Return what starts an SGLang server on this machine, each time with the weights that it is to serve.

    `settings.model` and `settings.version` count for nothing. With a `port` of 0 every start has an address of its own.
    """

    async def launch(weights: Weights) -> LocalServer:
        server = start_sglang(replace(settings, model=weights.folder, version=weights.version))
        try:
            await asyncio.to_thread(server.wait_ready, ready_s)
        except BaseException:  # cancelled, most likely: the thread ends with the process
            server.end(signal.SIGKILL)
            raise
        return LocalServer(server, settings.key)

    return launch
