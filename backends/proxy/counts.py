"""How many things one request may hold: each costs time, however few bytes it has."""

from __future__ import annotations

from typing import Final

from .conversation import Request
from .wire import BadRequestError

_MOST_MESSAGES: Final = 20_000
_MOST_TOOLS: Final = 2_000
_MOST_STOP_STRINGS: Final = 64
_BYTES_OF_A_TOKEN: Final = 16  # no text of any length has fewer tokens than one in so many bytes


def require_counts(request: Request) -> Request:
    """Return the request.

    Raises:
        BadRequestError: it has too many messages, tools or stop strings.
    """
    for what, count, most in (
        ("messages", len(request.messages), _MOST_MESSAGES),
        ("tools", len(request.tools), _MOST_TOOLS),
        ("stop strings", len(request.stop), _MOST_STOP_STRINGS),
    ):
        if count > most:
            raise BadRequestError(f"the request has {count} {what}; send at most {most}")
    return request


def surely_too_long(request: Request, context_tokens: int) -> int | None:
    """Return about how many tokens a request has whose text cannot fit, as its length shows; None where it may fit."""
    size = sum(len(tool.description) for tool in request.tools)
    for message in request.messages:
        size += len(message.text) + len(message.reasoning) + sum(len(call.arguments) for call in message.tool_calls)
    tokens = size // _BYTES_OF_A_TOKEN
    return tokens if tokens >= context_tokens else None
