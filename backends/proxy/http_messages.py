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


class KeysDifferError(Exception):
    """A request carries several keys."""


class ClientGoneError(Exception):
    """The client hung up before its request was whole."""


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the request's headers by lower-case name; of a repeated one the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def key_of(scope: Mapping[str, Any]) -> str:
    """Return the key that a request carries as Bearer or x-api-key, "" where there is none.

    Raises:
        KeysDifferError: it carries several that are not the same. Which one is meant, nobody can tell, and a proxy in
            between may have looked at another than the one that is taken here.
    """
    found = {key for name, value in scope["headers"] if (key := _key(name, value.decode("latin-1").strip()))}
    if len(found) > 1:
        raise KeysDifferError
    return found.pop() if found else ""


def _key(name: bytes, value: str) -> str:
    if name == b"x-api-key":
        return value
    kind, _, token = value.partition(" ")
    return token.strip() if name == b"authorization" and kind.lower() == "bearer" else ""


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
