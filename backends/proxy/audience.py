"""Whether anybody waits for a reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Audience:
    """The clients of one call. When the last one leaves, the next has a while to come before the call is given up."""

    def __init__(self) -> None:
        """Start with nobody, and all the time in the world for the first to come."""
        self.clients = 0
        self._waiting: asyncio.Future[bool] | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._lost = False

    def join(self) -> None:
        """A client comes."""
        self.clients += 1
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        self._tell(True)

    def leave(self, linger_s: float, on_lost: Callable[[], object]) -> None:
        """A client goes. If it was the last, `on_lost` is called unless another comes within `linger_s`."""
        self.clients -= 1
        if not self.clients and not self._lost:
            self._leaving = asyncio.get_running_loop().call_later(linger_s, self._lose, on_lost)

    def _lose(self, on_lost: Callable[[], object]) -> None:
        self._leaving, self._lost = None, True
        on_lost()
        self._tell(False)

    def _tell(self, there: bool) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(there)

    async def attended(self) -> bool:
        """Return whether anybody is there; where nobody is just now, wait until it is known."""
        if self.clients or self._lost:
            return bool(self.clients)
        self._waiting = asyncio.get_running_loop().create_future()
        return await self._waiting
