"""A turn of the model's as a harness got it, and whether a copy that comes back is still that turn."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from ..conversation import Message, Speaker, ToolCall
from ..reply import Delta, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallStart

# What claude-code takes off a command; the directory is one word, quoted or not.
_CHANGED_DIRECTORY: Final = re.compile(r"""\s*cd\s+(?:"[^"]*"|'[^']*'|(?:[^\s;&|'"\\]|\\.)+)\s*&&\s*""")


def same_turn(known: Message, came: Message) -> bool:
    """Return whether `came` is `known` word for word but for what harnesses are known to do to it.

    Benign: arguments parsed and written again, `cd <dir> && ` taken off a command, white space around the text, and
    reasoning left out.
    """
    return (
        came.speaker is Speaker.ASSISTANT
        and len(known.tool_calls) == len(came.tool_calls)
        and all(map(same_call, known.tool_calls, came.tool_calls))
        and known.text.strip() == came.text.strip()
        and came.reasoning.strip() in ("", known.reasoning.strip())
    )


def same_call(known: ToolCall, came: ToolCall) -> bool:
    """Return whether two calls have one id and name, and arguments that mean the same."""
    if (known.id, known.name) != (came.id, came.name):
        return False
    if known.arguments == came.arguments:
        return True
    try:
        return _same_value(_parsed(known.arguments), _parsed(came.arguments))
    except (ValueError, RecursionError):
        return known.arguments.strip() == came.arguments.strip()


def _parsed(arguments: str) -> Any:
    return json.loads(arguments.strip() or "{}", strict=False)


def _same_value(known: Any, came: Any) -> bool:
    if isinstance(known, dict) and isinstance(came, dict):
        return known.keys() == came.keys() and all(_same_value(value, came[key]) for key, value in known.items())
    if isinstance(known, list) and isinstance(came, list):
        return len(known) == len(came) and all(map(_same_value, known, came))
    if isinstance(known, str) and isinstance(came, str):
        return known == came or _without_cd(known, came)
    if isinstance(known, bool) or isinstance(came, bool) or known is None or came is None:
        return known is came
    if isinstance(known, int | float) and isinstance(came, int | float):
        return known == came or _as_float(known) == _as_float(came)  # JavaScript has no other numbers
    return False


def _without_cd(known: str, came: str) -> bool:
    if not known.endswith(came):
        return False
    return _CHANGED_DIRECTORY.fullmatch(known, 0, len(known) - len(came)) is not None


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf")


def as_message(shown: Sequence[Delta]) -> Message:
    """Return the turn that a reply's pieces make."""
    calls: dict[int, ToolCall] = {}
    arguments: dict[int, list[str]] = {}
    for delta in shown:
        if isinstance(delta, ToolCallStart):
            calls[delta.index] = ToolCall(delta.id, delta.name, "", delta.namespace)
        elif isinstance(delta, ToolCallArguments):
            arguments.setdefault(delta.index, []).append(delta.fragment)
    return Message(
        Speaker.ASSISTANT,
        "".join(delta.text for delta in shown if isinstance(delta, TextDelta)),
        "".join(delta.text for delta in shown if isinstance(delta, ReasoningDelta)),
        tuple(
            ToolCall(call.id, call.name, "".join(arguments.get(index, ())), call.namespace)
            for index, call in sorted(calls.items())
        ),
    )
