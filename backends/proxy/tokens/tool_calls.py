"""Finds tool calls in a reply's text while it streams."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import string
from collections.abc import Mapping
from itertools import chain, islice
from typing import Any, Final

from ..conversation import Tool
from ..reply import Delta, TextDelta, ToolCallArguments, ToolCallStart
from .hermes import partial
from .parsers import CallFormat

_BASE62: Final = string.ascii_letters + string.digits
_KEY: Final = re.compile(r'"(?:arguments|parameters)"\s*:\s*')
_BRACES_TRIED: Final = 64
_DECODER: Final = json.JSONDecoder(strict=False)


class ToolCallReader:
    """Passes text on up to the first call; from there on it keeps all until the reply ends, and parses it once.

    Each call then comes whole, its arguments as the model wrote them where they stand as JSON; text between and after
    calls is left out. What begins like a call and is none comes as text.
    """

    def __init__(self, form: CallFormat, names: Mapping[str, Tool], reply_id: str = "") -> None:
        """`reply_id`, unique for ever, gives the calls their ids: the reply parsed again has the same ones."""
        self._form = form
        self._names = names
        self._reply_id = reply_id or secrets.token_hex(16)
        self._held = ""  # white space and what may be the start of a call
        self._gap = ""  # white space before the first call
        self._calls: list[str] = [] if form.start else [""]  # pieces of text from the first call on
        self._begun = False  # whether any text has come
        self.count = 0

    def feed(self, text: str) -> list[Delta]:
        """Return the text that is certain to be no call."""
        if self._calls:
            self._calls.append(text)
            return []
        text = self._held + text
        at = text.find(self._form.start)
        if not self._begun and (first := text[: at if at >= 0 else None].lstrip()):
            self._begun = True
            if self._form.begins(first):
                self._held, self._calls = "", [text]
                return []
        if at >= 0:
            shown = text[:at].rstrip()
            self._held, self._gap, self._calls = "", text[len(shown) : at], [text[at:]]
            return _text(shown)
        kept = len(text) - partial(text, (self._form.start,))
        kept = len(text[:kept].rstrip())
        self._held = text[kept:]
        return _text(text[:kept])

    def end(self) -> list[Delta]:
        """Return the calls, and what was held back."""
        if not self._calls:
            held, self._held = self._held, ""
            return _text(held)
        block, self._calls = "".join(self._calls), [""]
        calls = self._form.calls(block)
        if not self._form.start:
            return _text(self._form.before(block)) * bool(calls) + self._emitted(block, calls)
        pieces = [piece for piece in re.split(f"(?={re.escape(self._form.start)})", block) if piece]
        apart = [(piece, self._form.calls(piece)) for piece in pieces] if len(pieces) > len(calls) else []
        if not apart or sum(len(found) for _, found in apart) < len(calls):
            apart = [(block, calls)]
        deltas = list(chain.from_iterable(self._emitted(piece, found) for piece, found in apart))
        if isinstance(deltas[0], TextDelta):
            deltas[0] = TextDelta(self._gap + deltas[0].text)
        return deltas

    def _emitted(self, block: str, calls: list[tuple[str, str]]) -> list[Delta]:
        if not calls:
            return _text(block)
        deltas: list[Delta] = []
        at = 0
        for name, arguments in calls:
            raw, at = _raw(block, arguments, at)
            tool = self._names.get(name)
            call_id = _call_id(self._reply_id, self.count)
            known = (name, "") if tool is None else (tool.name, tool.namespace)
            deltas += [ToolCallStart(self.count, call_id, *known), ToolCallArguments(self.count, raw)]
            self.count += 1
        return deltas


def _call_id(reply_id: str, index: int) -> str:
    number = int.from_bytes(hashlib.blake2b(f"{reply_id}/{index}".encode(), digest_size=20).digest())
    return "call_" + "".join(_BASE62[number // 62**place % 62] for place in range(24))


def _text(text: str) -> list[Delta]:
    return [TextDelta(text)] if text else []


def _raw(block: str, arguments: str, start: int) -> tuple[str, int]:
    """Return the arguments as written in the block from `start` on, and where they end; else as they were parsed."""
    try:
        wanted = json.loads(arguments, strict=False)
    except ValueError:
        return arguments, start
    places = chain(
        (match.end() for match in _KEY.finditer(block, start)),
        islice((match.start() for match in re.compile(r"\{").finditer(block, start)), _BRACES_TRIED),
    )
    for place in places:
        try:
            value, end = _DECODER.raw_decode(block, place)
        except (ValueError, RecursionError):
            continue
        if value == wanted:
            return _unwrapped(value, block[place:end]), end
    return _unwrapped(wanted, arguments), start


def _unwrapped(value: Any, written: str) -> str:
    """Return the arguments of a call that wrote them as a string of JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return written
        return value
    return written
