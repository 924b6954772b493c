"""Replies to encode: made up by hypothesis, written out by an encoder, and what any client must have seen of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from gyre.backends.proxy.conversation import Request
from gyre.backends.proxy.reply import (
    Delta,
    End,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from gyre.backends.proxy.wire import Encoder
from gyre.trajectory.call import Finish

pytest.importorskip("orjson", reason="the wires write JSON with it")


@dataclass(frozen=True)
class Call:
    """A tool call as a client saw it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Heard:
    """A reply as a client saw it."""

    text: str
    reasoning: str
    calls: tuple[Call, ...]
    reason: str
    usage: tuple[int, int, int]  # input, of these cached, output
    runs: tuple[str, ...] = field(default=(), compare=False)  # kinds of its blocks, where the protocol has such


def expected(deltas: Iterable[Delta], reason: str, end: End) -> Heard:
    """Return what any client must have seen."""
    text, reasoning, calls = "", "", []
    for delta in deltas:
        match delta:
            case TextDelta(piece):
                text += piece
            case ReasoningDelta(piece):
                reasoning += piece
            case ToolCallStart(_, id_, name):
                calls.append([id_, name, ""])
            case ToolCallArguments(index, piece):
                calls[index][2] += piece
    usage = (end.usage.input_tokens, end.usage.cached_tokens, end.usage.output_tokens)
    return Heard(text, reasoning, tuple(Call(*call) for call in calls), reason, usage)


def streamed(encoder: Encoder, deltas: Iterable[Delta], end: End) -> bytes:
    """Return a whole stream, with a sign of life after every piece."""
    parts = [encoder.begin(end.usage.input_tokens)]
    for delta in deltas:
        parts += [encoder.feed(delta), encoder.keep_alive()]
    return b"".join([*parts, encoder.end(end)])


def plain(encoder: Encoder, deltas: Sequence[Delta], end: End) -> bytes:
    """Return a whole body after some blanks."""
    return encoder.keep_alive() * 3 + encoder.whole(deltas, end)


# Text with what could break a frame: ends of lines of every sort, the framing's own words, characters of several bytes.
_TEXTS = st.text(
    st.one_of(st.sampled_from('\n\r\x0b\x1c\x85\u2028\u2029\ufeff"\\😀é'), st.characters(exclude_categories=["Cs"])),
    min_size=1,
    max_size=8,
) | st.sampled_from(["data: [DONE]\n\n", "\n\nevent: ping\ndata: {}\n\n", ": comment\n", "</think>", "{", "[DONE]"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _TEXTS, lambda v: st.lists(v, max_size=2), max_leaves=3
)


@st.composite
def _call(draw: st.DrawFn) -> tuple[str, list[str]]:
    arguments = draw(st.dictionaries(_TEXTS, _VALUES, max_size=3))
    ascii_, spaces = draw(st.booleans()), draw(st.sampled_from([None, 1]))
    text = json.dumps(arguments, ensure_ascii=ascii_, indent=spaces) if draw(st.booleans()) or arguments else ""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return draw(st.sampled_from(["bash", "read_file", "f"])), [
        text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)
    ]


@st.composite
def replies(draw: st.DrawFn) -> list[Delta]:
    """Any reply that keeps the contract: runs in any order, calls with whole JSON or with nothing."""
    deltas: list[Delta] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "call"]), max_size=6)):
        if kind == "call":
            name, fragments = draw(_call())
            deltas.append(ToolCallStart(calls, f"call_{calls}-x", name))
            deltas += [ToolCallArguments(calls, fragment) for fragment in fragments]
            calls += 1
        else:
            make = TextDelta if kind == "text" else ReasoningDelta
            deltas += [make(text) for text in draw(st.lists(_TEXTS | st.just(""), max_size=3))]
    return deltas


CUTS = st.lists(st.integers(1, 40), max_size=4)
FINISHES = st.sampled_from([Finish.STOP, Finish.LENGTH])


def the_end(finish: Finish = Finish.STOP, stop_sequence: str = "") -> End:
    """Return an end with tokens that can be told apart."""
    return End(finish, Usage(100, 40, 17, 5), stop_sequence)


def ask(**more: Any) -> Request:
    """Return a request of which only what an encoder reads matters."""
    return Request(messages=(), model="policy", **more)


def runs(deltas: Iterable[Delta], text: str, reasoning: str, call: str) -> tuple[str, ...]:
    """Return the kinds of a reply's runs in order, by the names that a protocol gives them."""
    kinds = {TextDelta: text, ReasoningDelta: reasoning, ToolCallStart: call}
    found: list[str] = []
    for delta in deltas:
        if isinstance(delta, ToolCallArguments) or (isinstance(delta, TextDelta | ReasoningDelta) and not delta.text):
            continue
        if isinstance(delta, ToolCallStart) or found[-1:] != [kinds[type(delta)]]:
            found.append(kinds[type(delta)])
    return tuple(found)


def calls_any(deltas: Iterable[Delta]) -> bool:
    """Tell whether a tool is called."""
    return any(isinstance(delta, ToolCallStart) for delta in deltas)


def with_plain_arguments(heard: Heard) -> Heard:
    """Return the same with every call's arguments parsed and written again."""
    calls = tuple(replace(call, arguments=json.dumps(json.loads(call.arguments or "{}"))) for call in heard.calls)
    return replace(heard, calls=calls)
