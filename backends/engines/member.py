"""An engine in a pool: what is known of its health, and what runs on it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from enum import StrEnum

from .engine import Engine, EngineInfo, EngineLostError, WrongModelError
from .lease import Lease

_log = logging.getLogger(__name__)


class MemberState(StrEnum):
    """Where an engine stands."""

    JOINING = "joining"  # it has not answered yet
    SERVING = "serving"
    LOST = "lost"  # it failed; it comes back by itself once it is well
    DRAINING = "draining"  # it takes no new requests, by order
    DRAINED = "drained"  # and runs none


@dataclass(frozen=True, slots=True)
class Checks:
    """How often an engine's health is looked at, in seconds."""

    every_s: float = 5.0  # while it is well
    retry_s: float = 1.0  # while it is not: doubled with every loss in a row that no token came between,
    retry_most_s: float = 30.0  # up to this
    stalled_s: float = 60.0  # what waits so long on an engine that fails its checks goes to one that does not


@dataclass(slots=True, eq=False)
class Member:
    """One engine, its latest info and the losses that requests reported."""

    engine: Engine
    info: EngineInfo | None = None
    problem: str = ""  # what was wrong at its latest check, where more is known than that it is not well
    up: bool = False
    draining: bool = False
    losses: int = 0  # ever: a check that began before the latest loss proves nothing
    strikes: int = 0  # losses since the engine last gave a token
    leases: dict[int, Lease] = field(default_factory=dict)  # of what runs here, by arrival
    idle: asyncio.Event = field(default_factory=asyncio.Event)  # nothing runs
    wake: asyncio.Event = field(default_factory=asyncio.Event)  # look at once
    watcher: asyncio.Task[None] | None = None

    @property
    def state(self) -> MemberState:
        """Where the engine stands now."""
        if self.draining:
            return MemberState.DRAINING if self.leases else MemberState.DRAINED
        if self.up:
            return MemberState.SERVING
        return MemberState.JOINING if self.info is None else MemberState.LOST

    def revoke(self, silent_since_s: float | None = None) -> int:
        """Tell all that runs here to go elsewhere, or what has heard nothing since then; return how many."""
        told = [one for one in self.leases.values() if silent_since_s is None or one.heard_s <= silent_since_s]
        for lease in told:
            lease.revoke()
        return len(told)

    async def check(self) -> EngineInfo | None:
        """Ask the engine whether it is well; return what it is now, None where it is not well. Never raises.

        Weights are published while it serves, and another may have been started at its address. One that was up and
        only does not say what it is, being busy, is what it was.
        """
        self.problem = ""
        try:
            if not await self.engine.healthy():
                return None
            try:
                return await self.engine.info()
            except WrongModelError:
                raise
            except EngineLostError:
                if self.up and self.info is not None:
                    return self.info
                raise
        except Exception as error:  # whatever is wrong with one engine, its watcher must live
            self.problem = str(error) if isinstance(error, EngineLostError) else repr(error)
            return None

    async def pause(self, checks: Checks) -> None:
        """Wait until it is time for the next check."""
        # Doubling stops in time: 2 to the power of all strikes would overflow.
        retry_s = min(checks.retry_s * 2 ** min(self.strikes, 16), checks.retry_most_s)
        try:
            async with asyncio.timeout(checks.every_s if self.up else retry_s):
                await self.wake.wait()
        except TimeoutError:
            pass
