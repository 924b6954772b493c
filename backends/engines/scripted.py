"""An engine double: it says what a script says, at a set pace, and fails on command."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from gyre.splitmix import mixed
from gyre.trajectory.call import Finish

from .engine import Chunk, EngineInfo, EngineLostError, EngineUnreachableError, Generation, RequestRefusedError

_INFO: Final = EngineInfo("scripted", kv_tokens=1 << 20, max_running=1024, max_context_tokens=1 << 20, version=0)

# The whole reply to a generation whose input's last `continued_tokens` are the beginning of that reply already.
Script = Callable[[Generation], Sequence[int]]


def counting(generation: Generation) -> Sequence[int]:
    """A script that goes on past any limit: each token is the number of tokens before it, modulo 256."""
    end = len(generation.input_ids) + generation.sampling.max_new_tokens + 1
    return [place % 256 for place in range(len(generation.input_ids) - generation.continued_tokens, end)]


def place_logprob(place: int) -> float:
    """A log-prob that depends on nothing but the token's place in the context; exact in float32."""
    return -(mixed(place) % 1024) / 256


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast tokens come, and how many at a time."""

    tokens_per_s: float = math.inf
    chunk_tokens: int = 1
    first_token_s: float = 0.0


class ScriptedEngine:
    """An engine whose replies are given: STOP where the script ends or at a stop token, LENGTH at the limit.

    `pause`, `resume`, `publish`, `kill` and `restart` are what befalls a real one. One that hangs looks like a paused
    one. `generations` and `closed` tell what it was asked, and which request ids were closed before their end.
    """

    def __init__(
        self,
        name: str,
        script: Script = counting,
        *,
        pace: Pace = Pace(),
        info: EngineInfo = _INFO,
        logprob: Callable[[int], float] = place_logprob,
        refuse: Callable[[Generation], str] = lambda generation: "",
    ) -> None:
        self.name = name
        self.pace = pace
        self.version = info.version
        self.generations: list[Generation] = []
        self.closed: list[str] = []
        self._script = script
        self._info = info
        self._logprob = logprob
        self._refuse = refuse
        self._alive = True
        self._paused = False
        self._aborts = 0
        self._sleepers: set[asyncio.Future[None]] = set()

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """See `Engine.generate`."""
        if not self._alive:
            raise EngineUnreachableError(f"{self.name} is dead")
        if reason := self._refusal(generation):
            raise RequestRefusedError(reason)
        self.generations.append(generation)
        ended = False
        try:
            async with aclosing(self._chunks(generation)) as chunks:
                async for chunk in chunks:
                    ended = chunk.finish is not None
                    yield chunk
        except EngineLostError:
            ended = True
            raise
        finally:
            if not ended:
                self.closed.append(generation.request_id)

    async def info(self) -> EngineInfo:
        """See `Engine.info`."""
        if not self._alive:
            raise EngineUnreachableError(f"{self.name} is dead")
        return replace(self._info, version=self.version)

    async def healthy(self) -> bool:
        """See `Engine.healthy`."""
        return self._alive and not self._paused

    async def close(self) -> None:
        """See `Engine.close`."""

    def pause(self, *, abort: bool = False) -> None:
        """Sample nothing until `resume`; what runs waits, or with `abort` ends with ABORT. New requests wait."""
        self._paused = True
        if abort:
            self._aborts += 1
            self._wake()

    def resume(self) -> None:
        """Go on."""
        self._paused = False
        self._wake()

    def publish(self, version: int) -> None:
        """Sample with these weights from now on."""
        self.version = version

    def kill(self) -> None:
        """Die: every stream breaks, and nothing can be reached."""
        self._alive = False
        self._wake()

    def restart(self) -> None:
        """Be there again, as new."""
        self._alive, self._paused = True, False

    async def _chunks(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        token_ids, finish = _plan(self._script(generation), generation)
        place, aborts = len(generation.input_ids), self._aborts
        clock = asyncio.get_running_loop().time
        start_s, done = clock() + self.pace.first_token_s, 0
        while True:
            count = min(self.pace.chunk_tokens, len(token_ids) - done)
            await self._sleep(start_s + (done + count) / self.pace.tokens_per_s)
            while self._alive and self._paused and aborts == self._aborts:
                await self._sleep(math.inf)
            if not self._alive:
                raise EngineLostError(f"{self.name} was killed")
            if aborts != self._aborts:
                yield Chunk((), (), (), Finish.ABORT)
                return
            new = token_ids[done : done + count]
            logprobs = tuple(self._logprob(at) for at in range(place + done, place + done + count))
            done += count
            last = done == len(token_ids)
            yield Chunk(tuple(new), logprobs, (self.version,) * count, finish if last else None)
            if last:
                return

    def _refusal(self, generation: Generation) -> str:
        room = self._info.max_context_tokens - len(generation.input_ids)
        if generation.sampling.max_new_tokens > room:
            return f"{generation.sampling.max_new_tokens} new tokens do not fit: the context has room for {room}"
        return self._refuse(generation)

    async def _sleep(self, until_s: float) -> None:
        """Sleep until a time of the loop's clock, or until something befalls the engine."""
        loop = asyncio.get_running_loop()
        if until_s <= loop.time():
            await asyncio.sleep(0)
            return
        sleeper = loop.create_future()
        timer = loop.call_at(until_s, _rouse, sleeper) if until_s < math.inf else None
        self._sleepers.add(sleeper)
        try:
            await sleeper
        finally:
            self._sleepers.discard(sleeper)
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        for sleeper in self._sleepers:
            _rouse(sleeper)


def _rouse(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


def _plan(reply: Sequence[int], generation: Generation) -> tuple[list[int], Finish]:
    """Cut a whole reply to what is still to come, and say how it ends."""
    sampling = generation.sampling
    token_ids = list(reply[generation.continued_tokens :])
    for count, token in enumerate(token_ids, 1):
        if token in sampling.stop_token_ids and count > sampling.min_new_tokens and count <= sampling.max_new_tokens:
            return token_ids[:count], Finish.STOP
    if len(token_ids) > sampling.max_new_tokens:
        return token_ids[: sampling.max_new_tokens], Finish.LENGTH
    return token_ids, Finish.STOP
