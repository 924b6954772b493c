"""What each protocol must do: read a request, write a reply. Bytes and objects in and out, no sockets, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .conversation import Request
from .reply import Delta, End, Failure


class BadRequestError(ValueError):
    """The body cannot be understood; the message names the field and the remedy."""


class Encoder(Protocol):
    """Writes one reply. Each method returns the bytes to send next, b"" for none.

    Streamed: `begin`, then `feed` and `keep_alive` in any order, then `end` or `fail`. Not streamed: `keep_alive` may
    be sent while the client waits, then `whole` or `fail`.
    """

    media_type: str

    def begin(self, input_tokens: int) -> bytes:
        """The stream's first event or events. The prompt is tokenised by then; nothing was sampled."""
        ...

    def keep_alive(self) -> bytes:
        """Something native to the protocol that says nothing and resets its clients' idle timers."""
        ...

    def feed(self, delta: Delta) -> bytes:
        """The events of one piece of the reply."""
        ...

    def end(self, end: End) -> bytes:
        """The stream's last events."""
        ...

    def whole(self, deltas: Sequence[Delta], end: End) -> bytes:
        """The reply as one JSON body."""
        ...

    def fail(self, failure: Failure) -> bytes:
        """In a stream that has begun: events that make the client see an error, never a clean end.

        Else: the error's JSON body, as `Wire.error` gives it.
        """
        ...


class Wire(Protocol):
    """A protocol."""

    name: str  # "chat", "messages" or "responses"

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Request:
        """Read a request. Unknown fields are let pass; header names are lower case.

        Raises:
            BadRequestError: something needed is missing or of the wrong kind.
        """
        ...

    def encoder(self, request: Request, reply_id: str, created_s: int) -> Encoder:
        """A writer for one reply; `reply_id` is unique, of letters, digits, `_` and `-`."""
        ...

    def status(self, failure: Failure) -> int:
        """The HTTP status of a failure that is known before anything was sent."""
        ...

    def error(self, failure: Failure) -> bytes:
        """The JSON body that goes with that status."""
        ...
