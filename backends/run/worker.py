"""Work that goes on to its end: in a thread for what must not be used by two at a time, or in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


class Worker:
    """Does work outside the event loop, one piece after the other, in the order in which it was given."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do one piece of work. Who waits may be cancelled; what was begun is done all the same."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def close(self) -> None:
        """Wait for what was given."""
        self._thread.shutdown(wait=True)


async def to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Do work that must not be left half done: who waits may be cancelled, and hears of that when it is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
