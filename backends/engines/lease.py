"""Room on an engine, held by one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from gyre.trajectory.call import Finish

from .engine import Chunk, Engine, EngineInfo, EngineLostError, Generation


class LeaseRevokedError(Exception):
    """The engine is to leave: the request must go on elsewhere."""


class Lease:
    """An engine that one request may use until it is done or told to go.

    It notes what its pool needs to know of how that went: whether the engine gave a token, and whether it was lost
    or broke off.
    """

    def __init__(self, engine: Engine, info: EngineInfo | None) -> None:
        self.engine = engine
        self.info = info
        self.progressed = False
        self.lost = False
        self.heard_s = asyncio.get_running_loop().time()  # when the engine last gave something
        self._revoked = False
        self._waiting: asyncio.Timeout | None = None

    def revoke(self) -> None:
        """Tell the request to go. It hears at its next chunk, or at once where it waits for one."""
        if self._waiting is not None and not self._revoked:
            self._waiting.reschedule(asyncio.get_running_loop().time())
        self._revoked = True

    async def chunks(self, generation: Generation, vocabulary: int | None = None) -> AsyncGenerator[Chunk, None]:
        """Generate on the engine. `vocabulary`: how many token ids the model has, so that no other is let pass.

        Raises:
            LeaseRevokedError: the lease was revoked, while waiting or between chunks.
            EngineLostError: as `Engine.generate`, or the engine sent an id that the model does not have.
            RequestRefusedError: as `Engine.generate`.
        """
        loop = asyncio.get_running_loop()
        async with aclosing(self.engine.generate(generation)) as stream:
            try:
                while (chunk := await self._next(stream)) is not None:
                    self.heard_s = loop.time()
                    _require_known(self.engine.name, chunk.token_ids, vocabulary)
                    self.progressed = self.progressed or bool(chunk.token_ids)
                    self.lost = self.lost or chunk.finish is Finish.ABORT  # most likely paused
                    yield chunk
            except EngineLostError:
                self.lost = True
                raise

    async def _next(self, stream: AsyncGenerator[Chunk, None]) -> Chunk | None:
        if self._revoked:
            raise LeaseRevokedError
        try:
            # A time-out that never comes by itself: the cheapest way to break into a wait from outside it.
            async with asyncio.timeout(None) as self._waiting:
                return await anext(stream, None)
        except TimeoutError as error:
            if self._revoked:
                raise LeaseRevokedError from error
            raise
        finally:
            self._waiting = None


def _require_known(engine: str, token_ids: tuple[int, ...], vocabulary: int | None) -> None:
    if token_ids and (min(token_ids) < 0 or (vocabulary is not None and max(token_ids) >= vocabulary)):
        raise EngineLostError(f"{engine} sent a token id that is none of the model's {vocabulary or ''}".rstrip())
