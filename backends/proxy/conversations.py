"""The histories of all executions, rendered in threads so that a long one holds up nobody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from gyre.trajectory.call import CallRecord

from .conversation import Request
from .remembered import RememberedCalls
from .reply import Delta, End
from .tokens import History, Prompt, Renderer

_T = TypeVar("_T")
_TURN_S: Final = 0.01  # that an execution with many requests may keep a thread


@dataclass(slots=True, eq=False)
class _Conversation:
    history: History
    remembered: RememberedCalls | None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # a history is for one at a time
    waiting: list[tuple[Request, asyncio.Future[Prompt]]] = field(default_factory=list)
    rendering: asyncio.Task[None] | None = None

    def render(self, requests: Sequence[Request]) -> list[Prompt | Exception]:
        """Return the prompts of the first of these requests, at least one, or why there is none."""
        found: list[Prompt | Exception] = []
        end_s = time.monotonic() + _TURN_S
        for request in requests:
            try:
                if self.remembered is not None:
                    self.remembered.recall(self.history, request)
                found.append(self.history.prompt(request))
            except Exception as error:  # each is for its own request
                found.append(error)
            if time.monotonic() >= end_s:
                break
        return found


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
        prompt: asyncio.Future[Prompt] = asyncio.get_running_loop().create_future()
        conversation.waiting.append((request, prompt))
        if conversation.rendering is None:
            conversation.rendering = asyncio.create_task(self._render(conversation))
        return await prompt

    async def _render(self, conversation: _Conversation) -> None:
        """Serve all who wait. Going to a thread and back takes longer than a prompt: many go together."""
        try:
            while waiting := conversation.waiting:
                requests = [request for request, _ in waiting]
                async with conversation.lock:
                    done = await self._run(partial(conversation.render, requests))
                served, conversation.waiting = waiting[: len(done)], waiting[len(done) :]
                for (_, prompt), result in zip(served, done, strict=True):
                    _settle(prompt, result)
        finally:
            conversation.rendering = None
            for _, prompt in conversation.waiting:  # only where the threads have gone
                prompt.cancel()

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


def _settle(prompt: asyncio.Future[Prompt], result: Prompt | Exception) -> None:
    if prompt.done():  # who asked has gone
        return
    if isinstance(result, Exception):
        prompt.set_exception(result)
    else:
        prompt.set_result(result)
