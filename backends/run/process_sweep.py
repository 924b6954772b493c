"""Ends what attempts left running, all of those together that ask at the same time."""

from __future__ import annotations

import asyncio
import logging

from gyre.scoring.leftovers import kill_marked

from .harness_process import ProcessMark, end_sessions

_log = logging.getLogger(__name__)


class ProcessSweep:
    """Ends sessions, and processes that have left theirs, by one look at all processes of the machine after another.

    A look costs as much as there are processes. One for each of n executions that are stopped at once would cost n**2.
    """

    def __init__(self) -> None:
        self._asked: dict[ProcessMark, str] = {}
        self._now: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None  # waits for the one that goes on, and takes all who ask meanwhile

    async def end(self, leader: ProcessMark, variable: str) -> None:
        """End the session of `leader` and all that was started with `variable`, NAME=VALUE, in its environment."""
        self._asked[leader] = variable
        if self._next is None:
            self._next = asyncio.create_task(self._sweep(self._now))
        await asyncio.shield(self._next)

    async def _sweep(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait({before})
        asked, self._asked = self._asked, {}
        self._now, self._next = self._next, None
        left = await asyncio.to_thread(_ended, asked)
        if left:
            _log.info("%d processes that harnesses left are ended", left)


def _ended(asked: dict[ProcessMark, str]) -> int:
    return end_sessions(asked) + kill_marked(*asked.values())
