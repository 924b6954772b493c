"""What runs on the node of a cell: it starts the cell's processes as on a machine of its own, and holds them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import ray

from ..cells.satellites import RunningSatellite, SatelliteLaunch
from ..cells.server import Launch, RunningServer
from ..publishing.weights import Weights
from .seen_file import SeenFile

_P = TypeVar("_P", RunningServer, RunningSatellite)

MakeEngine = Callable[[str], Launch]  # given the address of the node, at which its engine is to listen
MakeSatellite = Callable[[], SatelliteLaunch]


@dataclass(frozen=True, slots=True)
class Site:
    """Where an actor is."""

    address: str  # of its node, as other nodes reach it
    gpus: str  # what CUDA_VISIBLE_DEVICES says there
    pid: int


@dataclass(frozen=True, slots=True)
class StartedServer:
    """See `RunningServer`."""

    url: str
    key: str


@dataclass(frozen=True, slots=True)
class BuiltSatellite:
    """See `RunningSatellite`."""

    size: int
    layout: str


class CellActor:
    """Holds processes by numbers that who calls chooses, each once. Everything runs in one event loop.

    They end with this process, however that ends: engines by the kernel's parent-death signal, satellites by their
    pipe. The thread of the event loop starts them, and lives as long as the process.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._starting: dict[int, asyncio.Future[None]] = {}
        self._servers: dict[int, RunningServer] = {}
        self._satellites: dict[int, RunningSatellite] = {}
        self._over: set[int] = set()

    async def site(self) -> Site:
        """Say where this is."""
        return Site(ray.util.get_node_ip_address(), os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid())

    async def unseen(self, files: Sequence[SeenFile]) -> list[Path]:
        """Return which of some files are not seen here."""
        seen = await asyncio.gather(*(asyncio.to_thread(file.is_seen) for file in files))
        return [file.path for file, is_seen in zip(files, seen, strict=True) if not is_seen]

    async def start_server(self, number: int, make: MakeEngine, weights: Weights) -> StartedServer:
        """Start an engine; return when it serves."""
        launch = make(ray.util.get_node_ip_address())
        await self._start(number, self._servers, launch(weights))
        server = self._servers[number]
        return StartedServer(server.url, server.key)

    async def start_satellite(self, number: int, make: MakeSatellite, cell: int, core: str) -> BuiltSatellite:
        """Start a trainer; return when it is built."""
        await self._start(number, self._satellites, make()(cell, core))
        satellite = self._satellites[number]
        return BuiltSatellite(satellite.size, satellite.layout)

    async def join(self, number: int) -> None:
        """See `RunningSatellite.join`."""
        await self._satellites[number].join()

    async def leave(self, number: int) -> None:
        """See `RunningSatellite.leave`."""
        await self._satellites[number].leave()

    async def problems(self) -> dict[int, str]:
        """Return what is wrong with each process that is held; "" where nothing is known."""
        ended = {number: "its process has ended" if it.ended else "" for number, it in self._servers.items()}
        return ended | {number: it.problem for number, it in self._satellites.items()}

    async def end(self, number: int) -> None:
        """End a process, also one that is starting, or that nobody has heard of yet: calls may overtake each other."""
        self._over.add(number)
        if (starting := self._starting.get(number)) is not None:
            starting.cancel()
            await asyncio.wait({starting})
        if (server := self._servers.pop(number, None)) is not None:
            await server.end()
        if (satellite := self._satellites.pop(number, None)) is not None:
            await satellite.end()

    async def _start(self, number: int, running: dict[int, _P], launched: Awaitable[_P]) -> None:
        async def start() -> None:
            running[number] = await launched

        starting = self._starting[number] = asyncio.ensure_future(start())
        if number in self._over:
            starting.cancel()
        try:
            await asyncio.wait({starting})
            if starting.cancelled():
                raise RuntimeError("it was ended while it was starting")
            starting.result()
        finally:
            del self._starting[number]
