"""The serving side of a cell: an SGLang server that it owns, in a pool that others share."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from ..engines.engine import Engine
from ..engines.member import MemberState
from ..engines.sglang import SGLangEngine
from ..publishing.control import ControlError, EngineControl, PausePolicy
from ..publishing.giving import NotGivenError
from ..publishing.publisher import Publisher
from ..publishing.weights import Weights
from .server import Launch, RunningServer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a cell treats its engine. Times in seconds."""

    drain_s: float = 0.0  # requests in flight may end within this; what is left goes on elsewhere
    lost_s: float = 300.0  # an engine that fails its checks for so long is as good as dead
    probe_s: float = 5.0  # for one that is suspected to say its version, before it is started again


_SETTINGS: Final = EngineSettings()


@dataclass(slots=True)
class _Up:
    server: RunningServer
    engine: Engine
    control: EngineControl
    started_with: Weights | None  # None once that proves nothing any more
    serves: bool = False  # it is meant to


class EngineSide:
    """See `ServingSide`. The server is started once; again only after it died or does not obey."""

    def __init__(self, launch: Launch, publisher: Publisher, settings: EngineSettings = _SETTINGS) -> None:
        self._launch = launch
        self._publisher = publisher
        self._pool = publisher.pool
        self._settings = settings
        self._up: _Up | None = None
        self._released = False
        self._lost_since_s: float | None = None

    @property
    def name(self) -> str:
        """The engine's name in the pool; "" while there is none."""
        return "" if self._up is None else self._up.engine.name

    @property
    def server(self) -> RunningServer | None:
        """Its process; None while there is none."""
        return None if self._up is None else self._up.server

    async def start(self) -> None:
        """See `ServingSide.start`."""
        await self._begin(self._publisher.weights)

    async def _begin(self, weights: Weights) -> None:
        server = await self._launch(weights)
        url, key = server.url, server.key
        self._up = _Up(server, SGLangEngine(url, key=key), EngineControl(url, key=key), weights)
        self._released, self._lost_since_s = False, None
        await self.admit()

    async def drain(self) -> None:
        """See `ServingSide.drain`."""
        up = self._engine()
        up.serves = False
        self._publisher.withdraw(up.engine.name)
        moved = await self._pool.drain(up.engine.name, self._settings.drain_s)
        _log.info("engine %s is drained; %d replies go on elsewhere", up.engine.name, moved)

    def readmit(self) -> bool:
        """See `ServingSide.readmit`."""
        up = self._engine()
        up.serves = not up.server.ended and self._publisher.readmit(up.engine, up.control)
        return up.serves

    async def release(self) -> None:
        """See `ServingSide.release`. On CPU, or without SGLang's memory saver, only the engine's sampling stops."""
        up = self._engine()
        self._publisher.forget(up.engine.name)
        async with up.control.lock:  # a publish may still be at it
            # With abort it waits until nothing is left, and a server that releases memory with work in it dies.
            await up.control.pause(PausePolicy.ABORT)
            if await up.control.releases_memory():
                self._released = True
                await up.control.release_memory()

    async def restore(self) -> None:
        """See `ServingSide.restore`."""
        up = self._engine()
        async with up.control.lock:
            if self._released:
                await up.control.restore_memory()
                self._released = False

    async def admit(self) -> None:
        """See `ServingSide.admit`."""
        up = self._engine()
        holds, up.started_with = up.started_with, None
        await self._publisher.admit(up.engine, up.control, holds=holds)
        up.serves = True

    async def revive(self) -> None:
        """See `ServingSide.revive`."""
        up = self._up
        if up is not None and not up.server.ended:
            try:
                await self._obeys(up)
                await self.restore()
                await self.admit()
                self._lost_since_s = None
                return
            except (ControlError, NotGivenError, TimeoutError, ValueError) as error:
                _log.warning("engine %s is started again: %s", up.engine.name, error)
        await self._let_go()
        # What is served now may be gone from the disk before a slow start has read it: the steps go on meanwhile.
        await self._begin(self._publisher.first)

    def problem(self) -> str:
        """See `ServingSide.problem`."""
        up = self._up
        if up is None or up.server.ended:
            return "its engine's process has ended"
        if not up.serves:
            return ""
        if up.engine.name not in self._publisher.admitted:
            return "its engine did not take new weights"
        now_s = asyncio.get_running_loop().time()
        if self._pool.members().get(up.engine.name) is not MemberState.LOST:
            self._lost_since_s = None
        elif self._lost_since_s is None:
            self._lost_since_s = now_s
        elif now_s - self._lost_since_s > self._settings.lost_s:
            return f"its engine has not been well for {self._settings.lost_s:g} s"
        return ""

    async def close(self) -> None:
        """See `ServingSide.close`."""
        await self._let_go()

    async def _obeys(self, up: _Up) -> None:
        """Raise unless the engine answers; it is out of the pool's service then."""
        up.serves, up.started_with = False, None
        self._publisher.forget(up.engine.name)
        async with asyncio.timeout(self._settings.probe_s):
            await up.control.version()
        if up.engine.name in self._pool.members():
            await self._pool.drain(up.engine.name, 0.0)  # else it cannot be let in again

    async def _let_go(self) -> None:
        """End the server and all that is known of it."""
        up, self._up = self._up, None
        if up is None:
            return
        self._publisher.forget(up.engine.name)
        try:
            if up.engine.name in self._pool.members():
                await self._pool.remove(up.engine.name)
            else:
                await up.engine.close()
            await up.control.close()
        finally:
            await up.server.end()

    def _engine(self) -> _Up:
        if self._up is None:
            raise RuntimeError("the engine was not started")
        return self._up
