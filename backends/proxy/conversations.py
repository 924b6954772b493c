"""The histories of all executions, rendered in threads so that a long one holds up nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from gyre.trajectory.call import CallRecord

from .conversation import Request
from .remembered import RememberedCalls
from .reply import Delta, End
from .tokens import History, Prompt, Renderer

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Conversation:
    history: History
    remembered: RememberedCalls | None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # a history is for one at a time


class Conversations:
    """By execution: what was said and sampled so far."""

    def __init__(self, renderer: Renderer, threads: int = 2) -> None:
        """Start with none. Tokenizers let other threads run meanwhile."""
        self._renderer = renderer
        self._all: dict[str, _Conversation] = {}
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="render")

    def open(self, execution: str, records: Sequence[CallRecord] = ()) -> None:
        """Begin an execution's history, or go on with what was recorded of it."""
        remembered = RememberedCalls(self._renderer, records) if records else None
        self._all[execution] = _Conversation(History(self._renderer), remembered)

    def forget(self, execution: str) -> None:
        """The execution has ended."""
        self._all.pop(execution, None)

    async def prompt(self, execution: str, request: Request) -> Prompt:
        """Return a request's tokens, recorded ones where its history repeats them.

        Raises:
            BadRequestError: the chat template refuses the messages.
        """
        conversation = self._all[execution]

        def render() -> Prompt:
            if conversation.remembered is not None:
                conversation.remembered.recall(conversation.history, request)
            return conversation.history.prompt(request)

        async with conversation.lock:
            return await self._run(render)

    async def record(self, execution: str, prompt: Prompt, output_ids: Sequence[int], shown: Sequence[Delta]) -> None:
        """Keep a finished call's tokens for the requests that will repeat it."""
        conversation = self._all.get(execution)
        if conversation is not None:
            async with conversation.lock:
                conversation.history.record(prompt, output_ids, shown)

    async def remembered(
        self, execution: str, digest: str, request: Request
    ) -> tuple[CallRecord, Sequence[Delta], End] | None:
        """Return the reply that an earlier process recorded for such a request."""
        remembered = self._all[execution].remembered
        return None if remembered is None else await self._run(lambda: remembered.reply(digest, request))

    async def count(self, request: Request) -> int:
        """Return how many input tokens a request has, as a new conversation.

        Raises:
            BadRequestError: the chat template refuses the messages.
        """
        return await self._run(lambda: self._renderer.count(request))

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=True, cancel_futures=True)
