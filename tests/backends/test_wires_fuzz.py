"""Whatever a body holds, a wire reads it or says what is wrong with it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wire_replies as wr
from hypothesis import example, given
from hypothesis import strategies as st
from wire_recordings import recorded

from gyre.backends.proxy.conversation import Request
from gyre.backends.proxy.reply import Delta
from gyre.backends.proxy.wire import BadRequestError, Wire
from gyre.backends.proxy.wires import ROUTES, WIRES, read_json, wire_for

_WIRES = st.sampled_from(list(WIRES.values()))
_WORDS = st.sampled_from(
    """type text role user assistant system tool content messages input tools function name arguments tool_calls call_id
    output tool_use tool_result tool_choice allowed_tools schema json_schema stop max_tokens metadata user_id source
    document namespace item_reference image custom thinking malformed_arguments""".split()  # noqa: SIM905
)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | _WORDS
_JSON = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=5), max_leaves=25
)
_HEADERS = st.dictionaries(st.sampled_from(["x-codex-turn-metadata", "user-agent", "thread-id"]), st.text(max_size=9))


def _try(wire: Wire, body: Any, headers: dict[str, str]) -> Request | None:
    """Parse; a refusal is one line, and anything else that is raised fails the test."""
    try:
        return wire.parse(body, headers)
    except BadRequestError as error:
        said = str(error)
    assert said
    assert "\n" not in said
    return None


@given(_WIRES, _JSON, _HEADERS)
def test_any_json_is_read_or_refused(wire: Wire, body: Any, headers: dict[str, str]) -> None:
    _try(wire, body, headers)


@given(_WIRES, st.dictionaries(_WORDS, _JSON), _JSON, _HEADERS)
def test_any_message_is_read_or_refused(
    wire: Wire, body: dict[str, Any], message: Any, headers: dict[str, str]
) -> None:
    _try(wire, {**body, "messages": [{"role": "user", "content": "hi"}, message], "input": ["hi", message]}, headers)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a body with every key or index in it."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from _places(value[key])


@st.composite
def _spoiled(draw: st.DrawFn, bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """Draw a recorded body and spoil some of its places."""
    body = copy.deepcopy(draw(st.sampled_from(bodies)))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(body))
        where, key = places[draw(st.integers(0, len(places) - 1))]
        if draw(st.booleans()):
            where[key] = draw(_JSON)
        else:
            del where[key]
        if not body:
            break
    return body


@given(data=st.data())
def test_any_spoiled_recording_is_read_or_refused(shared: Path, data: st.DataObject) -> None:
    by_length = sorted(recorded(shared), key=lambda record: len(json.dumps(record["body"])))
    kept = {record["harness"]: record for record in by_length if len(record["body"].get("messages", "abc")) >= 3}
    record = data.draw(st.sampled_from(sorted(kept)))
    body = data.draw(_spoiled([kept[record]["body"]]))
    wire = wire_for("POST", kept[record]["path"])
    assert wire is not None
    for other in WIRES.values():
        _try(other, body, kept[record]["headers"])


@given(
    st.binary(max_size=40) | st.text(max_size=20).map(str.encode) | _JSON.map(lambda value: json.dumps(value).encode())
)
@example(b'{"a": "\\ud83d"}')
@example(b"[" * 100_000)
@example(b'{"a": 1e999}')
@example(b'{"a": NaN}')
@example(b"\xff\xfe")
@example(b'{"a": ' + b"9" * 5000 + b"}")
def test_any_bytes_are_an_object_that_can_be_written_or_are_refused(body: bytes) -> None:
    try:
        read = read_json(body)
    except BadRequestError:
        return
    json.dumps(read, ensure_ascii=False).encode()


def test_half_a_character_is_replaced() -> None:
    assert read_json(b'{"a": "x\\ud83d", "b": "\\ud83d\\ude00"}') == {"a": "x\ufffd", "b": "😀"}


@given(st.integers(1, 3000))
@example(200)
@example(900)
@example(1000)
def test_depth_is_no_crash(depth: int) -> None:
    nested: dict[str, Any] = {}
    for _ in range(depth):
        nested = {"a": nested}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": nested}}
    turn = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": nested}]}
    _try(WIRES["chat"], {"messages": [{"role": "assistant", "tool_calls": [call]}]}, {})
    _try(WIRES["messages"], {"messages": [turn]}, {})


@given(wr.replies(), wr.FINISHES, st.sampled_from(sorted(WIRES)), st.booleans())
@pytest.mark.parametrize("model", ["policy", "\u2028", "half \ud83d"])
def test_any_model_name_can_be_written_back(
    model: str, deltas: list[Delta], finish: Any, name: str, stream: bool
) -> None:
    encoder = WIRES[name].encoder(Request(messages=(), model=model, stream=stream), "r1", 1)
    data = (wr.streamed if stream else wr.plain)(encoder, deltas, wr.the_end(finish))
    frames = data.decode().split("\n\n") if stream else [data.decode()]
    assert not stream or all(len(frame.splitlines()) <= 2 for frame in frames)


def test_a_piece_costs_the_same_at_a_long_replys_end() -> None:
    for name, wire in WIRES.items():
        encoder = wire.encoder(Request(messages=(), stream=True), "r1", 1)
        encoder.begin(1)
        for said in ([wr.TextDelta("a")], [wr.ReasoningDelta("a")], [wr.ToolCallStart(0, "c", "f")]):
            encoder.feed(said[0])
            again = said[0] if not isinstance(said[0], wr.ToolCallStart) else wr.ToolCallArguments(0, "a")
            sizes = [len(encoder.feed(again)) for _ in range(3000)]
            assert max(sizes) - min(sizes) <= 3, name  # the digits of a sequence number


def test_paths_lead_to_wires() -> None:
    assert wire_for("POST", "/x/e1/v1/chat/completions") is WIRES["chat"]
    assert wire_for("POST", "/x/e1/responses/") is WIRES["responses"]
    assert wire_for("GET", "/x/e1/v1/responses") is None
    assert wire_for("POST", "/x/e1/v1/completions") is None
    assert {wire.name for wire in ROUTES.values()} == set(WIRES)
