"""Weights for all engines of a pool, at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ..engines.engine import Engine
from ..engines.pool import EnginePool
from .control import EngineControl
from .giving import GiveSettings, NotGivenError, give
from .weights import Weights

_log = logging.getLogger(__name__)
_LEAVE_S: Final = 10.0  # for replies to leave an engine that is taken out: they hear at once
_SETTINGS: Final = GiveSettings()

Heard = Callable[[str, float], None]
"""Hears of an engine that has new weights: its name, and the seconds that it took."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a publish came to."""

    version: int
    given: Mapping[str, float]  # seconds that each engine took, by name
    failed: Mapping[str, str]  # why, by name; those are out of the pool


class Publisher:
    """Knows what is to be served, and lets only engines into a pool that serve it.

    Engines enter through `admit` and are told apart by name, as in the pool. One that could not be given weights is
    drained there at once, so that its replies go on elsewhere, and stays out until it is admitted again.
    """

    def __init__(self, pool: EnginePool, weights: Weights, settings: GiveSettings = _SETTINGS) -> None:
        """`weights` is what is served first; an engine that starts again begins with it, so it stays for ever."""
        self.pool: Final = pool
        self.first: Final = weights
        self.weights = weights
        self.settings = settings
        self._admitted: dict[str, EngineControl] = {}
        self._given: dict[str, Weights] = {}  # what each engine that was admitted is known to hold
        self._publishing = asyncio.Lock()

    @property
    def admitted(self) -> frozenset[str]:
        """Names of the engines that weights are published to."""
        return frozenset(self._admitted)

    async def admit(self, engine: Engine, control: EngineControl, *, holds: Weights | None = None) -> None:
        """Give an engine what is served now, then let it into the pool.

        `holds`: what it was started with; None where that is not known, or not to be relied on.

        Raises:
            NotGivenError: it could not be given it; it is not in the pool.
        """
        self._given.pop(engine.name, None)
        while holds is not self.weights:  # others may be published meanwhile
            weights = self.weights
            await give(control, weights, self.settings)
            holds = weights
        self._given[engine.name] = holds
        self.readmit(engine, control)  # no await since the comparison: a publish that begins later finds it

    def readmit(self, engine: Engine, control: EngineControl) -> bool:
        """Let an engine in that was withdrawn and left as it was; return False where it holds other weights."""
        if self._given.get(engine.name) is not self.weights:
            return False
        self._admitted[engine.name] = control
        self.pool.add(engine)
        return True

    def withdraw(self, name: str) -> None:
        """An engine leaves: it is published to no more. What it serves in the pool is for the caller to end."""
        self._admitted.pop(name, None)

    def forget(self, name: str) -> None:
        """An engine is no more, or its memory was given away."""
        self.withdraw(name)
        self._given.pop(name, None)

    async def publish(self, weights: Weights, heard: Heard = lambda name, seconds: None) -> Published:
        """Give weights to all admitted engines at once; return when each has them or is out of the pool.

        `heard` is called for each engine as soon as it has them. Cancelled, it leaves those that do not have them yet
        out of the pool.
        """
        async with self._publishing:
            self.weights = weights
            engines = dict(self._admitted)
            given: dict[str, float] = {}
            failed: dict[str, str] = {}
            try:
                async with asyncio.TaskGroup() as group:
                    for control in engines.values():
                        group.create_task(self._give(control, weights, given, failed, heard))
            finally:
                rest = [control for name, control in engines.items() if name not in given and name not in failed]
                await asyncio.gather(*map(self._take_out, rest))
        return Published(weights.version, given, failed)

    async def _give(
        self, control: EngineControl, weights: Weights, given: dict[str, float], failed: dict[str, str], heard: Heard
    ) -> None:
        begin_s = time.monotonic()
        self._given.pop(control.name, None)
        try:
            await give(control, weights, self.settings)
        except Exception as error:  # a transfer's own too: one engine's trouble is not the others'
            _log.warning("engine %s is taken out", control.name, exc_info=not isinstance(error, NotGivenError))
            await self._take_out(control)
            failed[control.name] = str(error) or repr(error)
            return
        given[control.name] = time.monotonic() - begin_s
        heard(control.name, given[control.name])
        self._given[control.name] = weights
        if self._admitted.get(control.name) is control:
            self.pool.refresh(control.name)

    async def _take_out(self, control: EngineControl) -> None:
        if self._admitted.get(control.name) is not control:
            return  # it left meanwhile, by itself
        del self._admitted[control.name]
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self.pool.drain(control.name, 0.0)
        except (TimeoutError, KeyError):  # it takes no new requests in any case
            _log.warning("replies are slow to leave engine %s", control.name)
