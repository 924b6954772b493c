"""HTTP as ASGI has it: a request's headers and body, and short answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON: Final = "application/json"


class BodyTooLargeError(Exception):
    """More than is allowed."""


class ClientGoneError(Exception):
    """The client hung up before its request was whole."""


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the request's headers by lower-case name; of a repeated one the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def key_of(headers: Mapping[str, str]) -> str:
    """Return the key that a request carries, "" where there is none."""
    kind, _, token = headers.get("authorization", "").strip().partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key", "").strip()


def start(status: int, media_type: str, more: Sequence[tuple[str, str]] = ()) -> Message:
    """Return the message that begins a response."""
    headers = [(b"content-type", media_type.encode()), *((name.encode(), value.encode()) for name, value in more)]
    return {"type": "http.response.start", "status": status, "headers": headers}


def part(body: bytes, *, last: bool = False) -> Message:
    """Return the message that carries a piece of the body."""
    return {"type": "http.response.body", "body": body, "more_body": not last}


async def answer(
    send: Send, status: int, body: bytes, media_type: str = JSON, more: Sequence[tuple[str, str]] = ()
) -> None:
    """Send a whole response."""
    await send(start(status, media_type, (("content-length", str(len(body))), *more)))
    await send(part(body, last=True))
