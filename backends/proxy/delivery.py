"""A call's reply on its way to one client."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from .http_messages import Receive, Send, answer, part, start
from .reply import Failure
from .transcript import Transcript
from .wire import Encoder, Wire

# Proxies in between must not gather a stream's pieces, nor keep a copy.
_STREAM_HEADERS: Final = (("cache-control", "no-cache"), ("x-accel-buffering", "no"))


class Outcome(StrEnum):
    """What became of a delivery."""

    WHOLE = "whole"  # the client has the reply's last byte
    REFUSED = "refused"  # it has an error with a status
    BROKEN = "broken"  # it has a beginning, and a connection that broke off
    GONE = "gone"  # it hung up


class Delivery:
    """Sends a transcript to one client as it grows, and keeps the connection alive where it does not."""

    def __init__(
        self,
        transcript: Transcript,
        wire: Wire,
        encoder: Encoder,
        send: Send,
        *,
        keep_alive_s: float,
        on_lag: Callable[[float], None],
    ) -> None:
        """`on_lag` hears for every piece how long it took from the engine to the client's socket, in seconds."""
        self._transcript = transcript
        self._wire = wire
        self._encoder = encoder
        self._send = send
        self._keep_alive_s = keep_alive_s
        self._on_lag = on_lag
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Future[None] | None = None
        self._gone = False
        self._begun = False
        self._sent_s = self._loop.time()

    async def run(self, receive: Receive, *, stream: bool) -> Outcome:
        """Send until the reply's end, or until the client hangs up."""
        watch = self._loop.create_task(self._watch(receive))
        self._timer = self._loop.call_later(self._keep_alive_s, self._tick)
        self._transcript.listen(self._rouse)
        try:
            await (self._stream() if stream else self._body())
        except OSError:  # the socket, which uvicorn tells of in receive too
            self._gone = True
        finally:
            self._transcript.leave(self._rouse)
            self._timer.cancel()
            watch.cancel()
        return self._outcome()

    def _outcome(self) -> Outcome:
        if self._gone:
            return Outcome.GONE
        if self._transcript.failure is None:
            return Outcome.WHOLE
        return Outcome.BROKEN if self._begun else Outcome.REFUSED

    async def _stream(self) -> None:
        transcript, encoder = self._transcript, self._encoder
        while transcript.input_tokens is None and not transcript.closed and not self._gone:
            await self._change()
        if self._gone or transcript.input_tokens is None:
            return await self._refuse()
        await self._begin(encoder.begin(transcript.input_tokens))
        sent, live = 0, False
        while not self._gone:
            if sent < len(transcript.deltas):
                new = transcript.deltas[sent:]
                sent += len(new)
                if data := b"".join(map(encoder.feed, new)):  # some protocols wait for more: that is silence
                    await self._put(data)
                    if live:
                        self._on_lag(self._sent_s - transcript.arrived_s)
            elif transcript.end is not None:
                await self._send(part(encoder.end(transcript.end), last=True))
                return
            elif transcript.failure is not None:
                await self._put(encoder.fail(transcript.failure))  # and no end: the server breaks the connection off
                return
            elif self._silent():
                await self._put(encoder.keep_alive())
            else:
                await self._change()
                live = True

    async def _body(self) -> None:
        transcript = self._transcript
        while not transcript.closed and not self._gone:
            if not self._silent():
                await self._change()
            elif transcript.input_tokens is None:
                self._sent_s = self._loop.time()  # an error may still need its status
            elif self._begun:
                await self._put(self._encoder.keep_alive())
            else:
                await self._begin(self._encoder.keep_alive())
        if self._gone or transcript.end is None:
            return await self._refuse()
        body = self._encoder.whole(transcript.deltas, transcript.end)
        if self._begun:
            await self._send(part(body, last=True))
        else:
            await answer(self._send, 200, body, self._encoder.media_type)

    async def _refuse(self) -> None:
        """Tell the failure where nothing was sent yet; where something was, only breaking off tells it."""
        if self._transcript.failure is not None and not self._begun and not self._gone:
            await refuse(self._send, self._wire, self._transcript.failure)

    async def _begin(self, first: bytes) -> None:
        self._begun = True
        await self._send(start(200, self._encoder.media_type, _STREAM_HEADERS))
        await self._put(first)

    async def _put(self, data: bytes) -> None:
        if data:
            await self._send(part(data))
        self._sent_s = self._loop.time()

    def _silent(self) -> bool:
        return self._loop.time() - self._sent_s >= self._keep_alive_s

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _change(self) -> None:
        """Wait until the transcript grows, the client hangs up, or it is time for a sign of life."""
        self._wake = self._loop.create_future()
        await self._wake
        self._wake = None

    def _tick(self) -> None:
        """One timer that is set again when it rings costs a busy stream nothing."""
        due_s = self._sent_s + self._keep_alive_s - self._loop.time()
        if due_s <= 0:
            self._rouse()
            due_s = self._keep_alive_s
        self._timer = self._loop.call_later(due_s, self._tick)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._rouse()


async def refuse(
    send: Send, wire: Wire, failure: Failure, *, status: int | None = None, more: Sequence[tuple[str, str]] = ()
) -> None:
    """Answer with an error in the protocol's own form; `status` where HTTP has a better one than the protocol."""
    wait_s = failure.retry_after_s
    more = [*more, *([] if wait_s is None else [("retry-after", str(math.ceil(wait_s)))])]
    await answer(send, status or wire.status(failure), wire.error(failure), more=more)
