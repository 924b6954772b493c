"""A reply on its way to a client, without sockets: when it is told that the proxy lives, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

for package in ("orjson", "starlette", "transformers"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from gyre.backends.proxy.delivery import Delivery, Outcome  # noqa: E402
from gyre.backends.proxy.reply import (  # noqa: E402
    Delta,
    End,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from gyre.backends.proxy.tokens.turns import as_message  # noqa: E402
from gyre.backends.proxy.transcript import Transcript, joined  # noqa: E402
from gyre.trajectory.call import Finish  # noqa: E402

END = End(Finish.STOP, Usage(1, 0, 1))


class Waiting:
    """An encoder that holds all of a reply back to its end."""

    media_type = "text/event-stream"

    def begin(self, input_tokens: int) -> bytes:
        return b"begin "

    def feed(self, delta: Delta) -> bytes:
        return b""

    def keep_alive(self) -> bytes:
        return b"alive "

    def end(self, end: End) -> bytes:
        return b"end"


async def _never() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


def test_pieces_that_become_no_bytes_do_not_keep_a_connection_alive() -> None:
    sent: list[bytes] = []
    lags: list[float] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def run() -> Outcome:
        transcript, loop = Transcript(), asyncio.get_running_loop()
        delivery = Delivery(transcript, None, Waiting(), send, keep_alive_s=0.05, on_lag=lags.append)  # type: ignore[arg-type]
        running = asyncio.create_task(delivery.run(_never, stream=True))
        transcript.begin(1)
        while sent.count(b"alive ") < 2:  # at the mercy of pytest's limit where they never come
            transcript.add([TextDelta("x")], loop.time())
            await asyncio.sleep(0.01)
        transcript.finish(END)
        return await running

    assert asyncio.run(asyncio.wait_for(run(), 20)) is Outcome.WHOLE
    assert b"".join(sent).startswith(b"begin alive alive ")
    assert sent[-1] == b"end"
    assert lags == []  # nothing of the engine's was sent


DELTAS = st.lists(
    st.builds(TextDelta, st.text(max_size=3))
    | st.builds(TextDelta, st.just("long " * 900))
    | st.builds(ReasoningDelta, st.text(max_size=3))
    | st.builds(lambda index: ToolCallStart(index, f"call_{index}", "bash"), st.integers(0, 2))
    | st.builds(ToolCallArguments, st.integers(0, 2), st.text(max_size=3)),
    max_size=12,
)


@given(DELTAS)
def test_joined_pieces_say_the_same_in_the_same_order(deltas: list[Delta]) -> None:
    whole = joined(deltas)
    assert as_message(whole) == as_message(deltas)
    assert len(whole) <= len(deltas) + sum(len(delta.text) for delta in deltas if isinstance(delta, TextDelta)) // 4096
    assert _letters(whole) == _letters(deltas)


def _letters(deltas: Sequence[Delta]) -> list[tuple[object, ...]]:
    """One entry for each letter, and for each start of a call."""
    found: list[tuple[object, ...]] = []
    for delta in deltas:
        match delta:
            case ToolCallStart(index=index):
                found.append((ToolCallStart, index))
            case ToolCallArguments(index=index, fragment=fragment):
                found += [(ToolCallArguments, index, letter) for letter in fragment]
            case _:
                found += [(type(delta), letter) for letter in delta.text]
    return found


def test_pieces_are_joined_once_nobody_listens() -> None:
    transcript = Transcript()
    heard: list[int] = []

    def listen() -> None:
        heard.append(len(transcript.deltas))

    transcript.listen(listen)
    for letter in "hello":
        transcript.add([TextDelta(letter)], 0.0)
    transcript.finish(END)
    assert heard == [1, 2, 3, 4, 5, 5]
    assert len(transcript.deltas) == 5
    transcript.leave(listen)
    assert transcript.deltas == [TextDelta("hello")]
