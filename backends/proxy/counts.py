"""How many things one request may hold, and how deep: each costs time, however few bytes it has."""

from __future__ import annotations

from typing import Any, Final

from .conversation import Request
from .wire import BadRequestError

_MOST_MESSAGES: Final = 20_000
_MOST_TOOLS: Final = 2_000
_MOST_STOP_STRINGS: Final = 64
_MOST_DEPTH: Final = 100  # of a schema; what reads it later is recursive
_BYTES_OF_A_TOKEN: Final = 16  # no text of any length has fewer tokens than one in so many bytes


def require_counts(request: Request) -> Request:
    """Return the request.

    Raises:
        BadRequestError: it has too many messages, tools or stop strings, or a schema that is nested too deeply.
    """
    for what, count, most in (
        ("messages", len(request.messages), _MOST_MESSAGES),
        ("tools", len(request.tools), _MOST_TOOLS),
        ("stop strings", len(request.stop), _MOST_STOP_STRINGS),
    ):
        if count > most:
            raise BadRequestError(f"the request has {count} {what}; send at most {most}")
    for schema in (*(tool.parameters for tool in request.tools), request.json_schema):
        if _too_deep(schema):
            raise BadRequestError(f"a JSON schema is nested deeper than {_MOST_DEPTH} levels; make it flatter")
    return request


def _too_deep(value: object) -> bool:
    """Look level by level: a function that calls itself would fail on what this is to find."""
    level: list[Any] = [value]
    for _ in range(_MOST_DEPTH):
        inner: list[Any] = []
        for one in level:
            inner += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        level = [one for one in inner if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def surely_too_long(request: Request, context_tokens: int) -> int | None:
    """Return about how many tokens a request has whose text cannot fit, as its length shows; None where it may fit."""
    size = sum(len(tool.description) for tool in request.tools)
    for message in request.messages:
        size += len(message.text) + len(message.reasoning) + sum(len(call.arguments) for call in message.tool_calls)
    tokens = size // _BYTES_OF_A_TOKEN
    return tokens if tokens >= context_tokens else None
