"""One call's way from its request to the record of its reply."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from gyre.trajectory.call import Finish

from ..engines.engine import Generation, RequestRefusedError, Sampling
from ..engines.generating import EnginesFailingError, Move
from .call import Call, StopReason
from .call_state import CallState
from .conversations import Conversations
from .engines import Engines
from .metrics import Metrics
from .recorder import LogUnwritableError, Recorder
from .refusals import LOG_FAILS, RefusedError, calls_take, too_long
from .reply import Delta, End, Failure, Usage
from .sampled import Sampled
from .settings import ProxySettings
from .tokens import Prompt, Renderer, ReplyParser
from .wire import BadRequestError

_log = logging.getLogger(__name__)
BROKEN: Final = Failure("internal", "the reply could not be made; try again")
_FAILING: Final = Failure("overloaded", "engine after engine failed on this request; try again later")
STOPPED: Final = {
    StopReason.CLIENT_GONE: Failure("internal", "nobody waited for the reply"),
    StopReason.EXECUTION_ENDED: Failure("ended", "the execution has ended; stop here"),
    StopReason.SHUTDOWN: Failure("overloaded", "the proxy is going down; try again"),
}


@dataclass(frozen=True, slots=True, eq=False)
class CallTools:
    """What every call is made with."""

    renderer: Renderer
    conversations: Conversations
    engines: Engines
    recorder: Recorder
    metrics: Metrics
    settings: ProxySettings


class CallRun:
    """One call: rendered, generated, recorded, and only then told to be whole."""

    def __init__(self, tools: CallTools, call: Call) -> None:
        self._by = tools
        self._call = call
        self._sampled = Sampled()
        self._parser = ReplyParser(tools.renderer, call.request, stop=tools.settings.sampling.stop, reply_id=call.id)
        self._loop = asyncio.get_running_loop()
        self._clipped = False  # by what the execution has left

    async def run(self) -> None:
        """Take the call from its request to the record of its reply.

        Raises:
            RefusedError: there is no reply, or no more of it.
        """
        call = self._call
        prompt = await self._rendered()
        sampling = self._sampling(prompt)
        call.transcript.begin(len(prompt.input_ids))
        call.move(CallState.RENDERED)
        generation = asyncio.create_task(self._generate(Generation(call.id, prompt.input_ids, sampling)))
        call.stopper = generation.cancel
        if call.stopped is not None:  # while it was rendered
            generation.cancel()
        left_s = call.execution.seconds_left(self._loop.time())
        limit = None if left_s is None else self._loop.call_later(left_s, call.stop, StopReason.TIME_LIMIT)
        try:
            await asyncio.wait({generation})
        finally:
            call.stopper = None
            generation.cancel()
            if limit is not None:
                limit.cancel()
        await self._ended(prompt, generation)

    async def _rendered(self) -> Prompt:
        call, metrics = self._call, self._by.metrics
        try:
            prompt = await self._by.conversations.prompt(call.execution.id, call.request)
        except BadRequestError as error:
            raise RefusedError(Failure("invalid_request", str(error))) from error
        metrics.render.observe(self._loop.time() - call.received_s)
        metrics.input_tokens.inc(len(prompt.input_ids))
        metrics.reused_tokens.inc(prompt.reused_tokens)
        if prompt.branch:
            metrics.branches.labels(prompt.branch).inc()
        return prompt

    def _sampling(self, prompt: Prompt) -> Sampling:
        """Return how to sample, within what still fits: the context, and what the execution has left."""
        call, settings = self._call, self._by.settings
        tokens = len(prompt.input_ids)
        context = self._by.engines.context_tokens()
        if context is not None and tokens >= context:
            raise RefusedError(too_long(tokens, context))
        if limit := call.execution.tokens_taken(tokens):
            raise RefusedError(calls_take(limit, settings.bounds.retry_after_s))
        room = settings.sampling.max_new_tokens if context is None else context - tokens
        left = call.execution.tokens_left(tokens)
        call.share.take(tokens)
        self._clipped = left is not None and left < min(room, settings.sampling.max_new_tokens)
        try:
            return self._by.renderer.sampling(
                call.request, settings.sampling, room if left is None else min(room, left)
            )
        except BadRequestError as error:
            raise RefusedError(Failure("invalid_request", str(error))) from error

    async def _generate(self, generation: Generation) -> None:
        call, take, feed, loop = self._call, self._sampled.take, self._parser.feed, self._loop
        call.move(CallState.QUEUED)
        self._sampled.queued_s = loop.time()
        chunks_of = self._by.engines.generate
        async with aclosing(
            chunks_of(call.execution.id, generation, on_move=self._moved, on_place=self._placed)
        ) as chunks:
            async for chunk in chunks:
                now_s = loop.time()
                if math.isnan(self._sampled.first_s):
                    self._sampled.first_s = now_s
                    call.move(CallState.STREAMING)
                    self._by.metrics.first_token.observe(now_s - call.received_s)
                take(chunk)
                call.transcript.add(feed(chunk.token_ids), now_s)
                if call.share.take(len(chunk.token_ids)) and chunk.finish is None:
                    self._clipped = True
                    call.stop(StopReason.TOKEN_LIMIT)

    def _placed(self, engine: str) -> None:
        sampled, now_s = self._sampled, self._loop.time()
        sampled.places.append((engine, now_s, len(sampled.token_ids)))
        if not sampled.token_ids:
            self._by.metrics.queue.observe(now_s - sampled.queued_s)

    def _moved(self, move: Move) -> None:
        self._by.metrics.moves.labels(move.engine).inc()
        told = {**self._call.told, "engine": move.engine, "reason": move.reason, "output_tokens": move.tokens}
        _log.info("a reply goes on elsewhere", extra=told)

    async def _ended(self, prompt: Prompt, generation: asyncio.Task[None]) -> None:
        """The engines are done with it, one way or another."""
        call = self._call
        if generation.cancelled() or call.stopped is not None:
            if call.stopped not in (StopReason.TIME_LIMIT, StopReason.TOKEN_LIMIT):
                await self._given_up(prompt)
                return
            call.execution.limit_met(self._loop.time())
            if math.isnan(self._sampled.first_s):
                raise RefusedError(Failure("ended", "the execution has reached its time limit; stop here"))
            self._sampled.finish = Finish.LENGTH
        elif (error := generation.exception()) is not None:
            if isinstance(error, RequestRefusedError):
                raise RefusedError(Failure("invalid_request", f"the engine refuses the request: {error}")) from error
            if isinstance(error, EnginesFailingError):
                _log.warning("engines fail: %s", error, extra=call.told)
                raise RefusedError(_FAILING) from error
            raise error
        finish = self._sampled.finish
        if finish in (None, Finish.ERROR, Finish.ABORT):
            raise RefusedError(BROKEN)
        call.transcript.add(self._parser.end(finish), self._loop.time())
        if not await call.audience.attended():
            await self._given_up(prompt)
            return
        await self._record(prompt, self._parser.finish, delivered=True)
        shown: Sequence[Delta] = call.transcript.deltas
        await self._by.conversations.record(call.execution.id, prompt, self._sampled.token_ids, shown)
        call.finish(self._end(prompt))

    async def _given_up(self, prompt: Prompt) -> None:
        """Nobody will see the reply: what there is of it is recorded as such."""
        call = self._call
        reason = call.stopped or StopReason.CLIENT_GONE
        call.stopped = reason
        if self._sampled.token_ids:
            await self._record(prompt, Finish.ABORT, delivered=False)
        raise RefusedError(STOPPED[reason])

    async def _record(self, prompt: Prompt, finish: Finish, *, delivered: bool) -> None:
        call, by = self._call, self._by
        now_s = self._loop.time()
        record = self._sampled.record(call, prompt, finish, delivered=delivered, now_s=now_s)
        try:
            await by.recorder.append(record)
        except LogUnwritableError as error:
            by.metrics.unrecorded.inc()
            raise RefusedError(LOG_FAILS) from error
        by.metrics.record.observe(self._loop.time() - now_s)
        by.metrics.output_tokens.inc(len(record.output_ids))
        by.metrics.cached_tokens.inc(self._sampled.cached_tokens)
        call.share.release()
        call.execution.use(len(record.input_ids) + len(record.output_ids), record.role, delivered=delivered)
        if self._clipped and finish is Finish.LENGTH:
            call.execution.limit_met(now_s)
        told = {
            **call.told, "finish": finish, "input_tokens": len(record.input_ids),
            "reused_tokens": prompt.reused_tokens, "output_tokens": len(record.output_ids),
            "seconds": round(now_s - call.received_s, 4),
        }  # fmt: skip
        _log.info("a call is recorded", extra=told)

    def _end(self, prompt: Prompt) -> End:
        sampled, parser = self._sampled, self._parser
        usage = Usage(len(prompt.input_ids), sampled.cached_tokens, len(sampled.token_ids), parser.reasoning_tokens)
        if not self._call.request.want_token_ids:
            return End(parser.finish, usage, parser.stop_sequence)
        return End(
            parser.finish, usage, parser.stop_sequence, tuple(prompt.input_ids.tolist()), tuple(sampled.token_ids)
        )
