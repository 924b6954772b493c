"""One unbroken reply out of engines that come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from gyre.trajectory.call import Finish

from .continuation import Continuation, Decode
from .engine import Chunk, EngineLostError, EngineUnreachableError, Generation, RequestRefusedError
from .kv_transfer import KVTransfer, Recompute
from .lease import Lease, LeaseRevokedError
from .pool import EnginePool

_log = logging.getLogger(__name__)


class EnginesFailingError(Exception):
    """Engine after engine was lost on a request. It may be at fault or they; tried again later, it may well pass."""


@dataclass(frozen=True, slots=True)
class Move:
    """A reply that goes on elsewhere, or on the same engine once that is back."""

    execution: str
    engine: str  # that it leaves
    reason: str
    tokens: int  # that had come


@dataclass(frozen=True, slots=True)
class Persistence:
    """How a reply goes on after losses. Waiting for an engine has no bound; these are for engines that fail at once."""

    pause_s: float = 0.05  # before going on, doubled with every loss in a row that no token came between,
    pause_most_s: float = 5.0  # up to this
    fatal_losses: int = 6  # engines in a row that were lost with this request and no token: it may be what kills them

    def pause(self, fruitless: int) -> float:
        """Seconds before the next try after so many losses in a row; none after the first."""
        return 0.0 if fruitless < 2 else min(self.pause_s * 2 ** min(fruitless - 2, 16), self.pause_most_s)


_PERSISTENCE: Final = Persistence()
_RECOMPUTE: Final = Recompute()


async def generate(
    pool: EnginePool,
    execution: str,
    generation: Generation,
    *,
    decode: Decode | None = None,
    on_move: Callable[[Move], None] = lambda move: None,
    on_place: Callable[[str], None] = lambda engine: None,
    persistence: Persistence = _PERSISTENCE,
    transfer: KVTransfer = _RECOMPUTE,
    vocabulary: int | None = None,
) -> AsyncGenerator[Chunk, None]:
    """Yield a reply's chunks, whatever becomes of engines; the last has `finish`, never ABORT.

    Where an engine is lost, breaks off or is to leave, the reply goes on with the tokens so far as input; each token
    keeps the log-prob and the version that it was sampled with. Closing the iterator aborts the request. `decode`
    finds stop strings that span two engines (`Continuation`). `on_place` hears the engine's name when there is room.
    `vocabulary` is how many token ids the model has: an engine that sends another counts as lost.

    A constrained reply (`Sampling.constraint`) comes as one chunk once it is whole, and begins anew where it must
    move: a grammar cannot go on in the middle.

    Raises:
        RequestRefusedError: an engine refuses the request; or it fits no context.
        EnginesFailingError: engine after engine was lost on it; this alone can come after chunks.
    """
    attempts = _Attempts(pool, execution, generation, on_move, on_place, persistence, transfer, vocabulary)
    replies = attempts.held() if generation.sampling.constraint else attempts.streamed(decode)
    async with aclosing(replies) as chunks:
        async for chunk in chunks:
            yield chunk


class _Attempts:
    """The tries of one generation, one engine after another."""

    def __init__(
        self,
        pool: EnginePool,
        execution: str,
        generation: Generation,
        on_move: Callable[[Move], None],
        on_place: Callable[[str], None],
        persistence: Persistence,
        transfer: KVTransfer,
        vocabulary: int | None,
    ) -> None:
        self._pool = pool
        self._vocabulary = vocabulary
        self._generation = generation
        self._on_move = on_move
        self._on_place = on_place
        self._persistence = persistence
        self._transfer = transfer
        self._ticket = pool.ticket(execution, len(generation.input_ids), generation.sampling.max_new_tokens)
        self._count = 0
        self._fruitless = 0  # losses in a row without a token between
        self._fatal = 0  # of these, with an engine that had the request
        self._source = ""  # engine that has the KV of what came

    async def streamed(self, decode: Decode | None) -> AsyncGenerator[Chunk, None]:
        progress = Continuation(self._generation, decode)
        while (finish := progress.ended()) is None or self._count == 0:
            async with aclosing(self._attempt(progress)) as chunks:
                async for chunk in chunks:
                    yield chunk
                    if chunk.finish is not None:
                        return
        yield Chunk((), (), (), finish)

    async def held(self) -> AsyncGenerator[Chunk, None]:
        while True:
            async with aclosing(self._attempt(Continuation(self._generation))) as chunks:
                parts = [chunk async for chunk in chunks]
            if parts and parts[-1].finish is not None:
                yield _joined(parts)
                return

    async def _attempt(self, progress: Continuation) -> AsyncGenerator[Chunk, None]:
        """Go on on one engine; end without a finish where the reply must move."""
        await asyncio.sleep(self._persistence.pause(self._fruitless))
        ticket = replace(self._ticket, input_tokens=progress.input_tokens(), max_new_tokens=progress.left())
        async with self._pool.lease(ticket) as lease:
            self._on_place(lease.engine.name)
            left = _fitting(lease, progress)
            if left == 0:
                yield Chunk((), (), (), Finish.LENGTH)
                return
            generation = progress.rest(self._count, left)
            self._count += 1
            try:
                if self._source not in ("", lease.engine.name):
                    await self._transfer.move(self._source, lease.engine.name, generation.input_ids)
                async with aclosing(self._chunks(lease, generation, progress)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            except LeaseRevokedError:
                self._leave(lease, "it is to leave", progress)
            except EngineLostError as error:
                self._leave(lease, str(error), progress)
                self._fruitless += 1
                self._count_fatal(error)

    async def _chunks(
        self, lease: Lease, generation: Generation, progress: Continuation
    ) -> AsyncGenerator[Chunk, None]:
        async with aclosing(lease.chunks(generation, self._vocabulary)) as chunks:
            async for chunk in chunks:
                if chunk.token_ids:
                    self._fruitless = self._fatal = 0
                    self._source = lease.engine.name
                taken = progress.take(chunk)
                if taken.token_ids or taken.finish is not None:
                    yield taken
                if taken.finish is not None:
                    return
                if chunk.finish is not None:
                    self._leave(lease, "it broke off", progress)
                    self._fruitless += 1
                    return
        raise EngineLostError(f"{lease.engine.name} ended without a finish")

    def _leave(self, lease: Lease, reason: str, progress: Continuation) -> None:
        move = Move(self._ticket.execution, lease.engine.name, reason, len(progress.token_ids))
        _log.info("a reply of %s leaves %s after %d tokens: %s", move.execution, move.engine, move.tokens, reason)
        self._on_move(move)

    def _count_fatal(self, error: EngineLostError) -> None:
        if isinstance(error, EngineUnreachableError):
            return
        self._fatal += 1
        if self._fatal >= self._persistence.fatal_losses:
            raise EnginesFailingError(
                f"{self._fatal} engines in a row were lost on this request without a token; the last: {error}"
            ) from error


def _fitting(lease: Lease, progress: Continuation) -> int:
    """Tokens that may come on this engine, 0 where the reply has filled its context.

    Raises:
        RequestRefusedError: the input alone fills it.
    """
    if lease.info is None:
        return progress.left()
    room = lease.info.max_context_tokens - progress.input_tokens()
    if room > 0:
        return min(room, progress.left())
    if progress.token_ids:
        return 0
    raise RequestRefusedError(
        f"the input of {progress.input_tokens()} tokens leaves no room in a context of "
        f"{lease.info.max_context_tokens} tokens"
    )


def _joined(parts: list[Chunk]) -> Chunk:
    versions = parts[-1].exact_versions or tuple(version for part in parts for version in part.versions)
    return Chunk(
        token_ids=tuple(token for part in parts for token in part.token_ids),
        logprobs=tuple(logprob for part in parts for logprob in part.logprobs),
        versions=versions,
        finish=parts[-1].finish,
        cached_tokens=parts[-1].cached_tokens,
    )
