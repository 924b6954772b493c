"""What an engine says of a fault, made fit for logs and clients: short, and without keys or what a prompt held."""

from __future__ import annotations

import re
from typing import Final

import orjson

_MOST: Final = 200  # characters
_LOOKED_AT: Final = 4000  # characters: the rest of a page of HTML says nothing
_REST: Final = "…"
_FIELDS: Final = ("message", "error", "detail", "msg")
_SECRETS: Final = (
    re.compile(r"(?i)\b(?:bearer|basic|token|api[-_ ]?key|authorization)\b[\"']?\s*[:=]?\s*[\"']?[^\s\"',}]+"),
    re.compile(r"\b(?:sk|pk|hf|ghp|xox[bp])[-_][\w-]{6,}"),
)
# What was asked comes back in many an error: lists of token ids, and text in quotes.
_ECHOES: Final = (
    re.compile(r"\[\s*-?\d[\d\s,.…-]*\]?"),
    re.compile(r"\"(?:[^\"\\]|\\.){25,}(?:\"|\Z)", re.DOTALL),
    re.compile(r"(?<!\w)'(?:[^'\\]|\\.){25,}(?:'|\Z)", re.DOTALL),
)


def error_text(said: object) -> str:
    """Return what an engine's error says in one line of at most 200 characters.

    Of JSON only its message is taken. Keys, lists of numbers and longer quotations are replaced by an ellipsis.
    """
    text = str(said)[:_LOOKED_AT] if not isinstance(said, dict) else _message(said)
    if text.lstrip().startswith("{"):
        try:
            text = _message(orjson.loads(str(said)))
        except orjson.JSONDecodeError:
            text = _REST
    for pattern in (*_SECRETS, *_ECHOES):
        text = pattern.sub(_REST, text)
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return text if len(text) <= _MOST else text[: _MOST - 1] + _REST


def _message(value: object) -> str:
    """Return the sentence that an error object has somewhere inside."""
    for _ in range(4):
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, dict):
            value = next((value[name] for name in _FIELDS if value.get(name)), _REST)
    return str(value)[:_LOOKED_AT] if isinstance(value, str) else _REST
