"""Says in the log which engines cannot be reached or used, and why, for as long as that is so."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ..engines.member import MemberState
from ..engines.pool import EnginePool

_log = logging.getLogger(__name__)
_FIRST_S: Final = 1.0  # an engine that is well has answered by then
_EVERY_S: Final = 30.0


async def watch_engines(pool: EnginePool, first_s: float = _FIRST_S, every_s: float = _EVERY_S) -> None:
    """Warn of engines that do not answer, now and again, until cancelled."""
    await asyncio.sleep(first_s)
    while True:
        for name, state in pool.members().items():
            if state in (MemberState.JOINING, MemberState.LOST):
                told = pool.problem(name) or "its /health gives no 200"
                _log.warning("engine %s cannot be reached or used (%s); requests wait for one that can", name, told)
        await asyncio.sleep(every_s)
