"""JSON and server-sent events as bytes."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
DONE: Final = b"data: [DONE]\n\n"
BLANK: Final = b" "  # before a JSON body: clients that wait see life, parsers skip it

# Clients that split text, not bytes, into lines take these for ends of a line; JSON may escape them.
_LINE_ENDS: Final = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)


class Raw:
    """JSON that `dump` takes over as it is. Valid by its maker's word."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def dump(value: Any) -> bytes:
    """Return `value` as JSON, one line where nothing in it is `Raw`. Lone surrogates come out as escapes."""
    try:
        line = orjson.dumps(value, default=_fragment)
    except TypeError:  # a lone surrogate, or nesting beyond what orjson does
        line = json.dumps(value, default=_parsed, separators=(",", ":")).encode()
    if not line.isascii():
        for raw, escaped in _LINE_ENDS:
            if raw in line:
                line = line.replace(raw, escaped)
    return line


def _fragment(value: object) -> orjson.Fragment:
    if isinstance(value, Raw):
        return orjson.Fragment(value.text)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _parsed(value: object) -> Any:
    if isinstance(value, Raw):
        return json.loads(value.text)
    raise TypeError(f"{type(value).__name__} is no JSON")


def data(value: Any) -> bytes:
    """Return an event without a name."""
    return b"data: %b\n\n" % dump(value)


def event(value: dict[str, Any]) -> bytes:
    """Return an event that is named by its "type"."""
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), dump(value))
