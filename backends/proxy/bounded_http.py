"""uvicorn's HTTP with bounds that its own lacks: on a request's head, in bytes and in time, and on connections."""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_log = logging.getLogger(__name__)
_TELL_EVERY_S: Final = 10.0
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 24\r\nretry-after: 20\r\nconnection: close\r\n\r\nToo many are connected.\n"
)
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 36\r\nconnection: close\r\n\r\nThe request's headers are too large."
)


class BoundedHttp(HttpToolsProtocol):
    """One connection. Before a head is whole nobody has shown a key, and nothing but this holds anybody back."""

    head_bytes: ClassVar[int] = 1 << 16  # and what comes with its end: some more fits where it comes in one piece
    head_s: ClassVar[float] = 30.0  # from its first byte, and of the first one from the connection's beginning
    _tell_s: ClassVar[float] = 0.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_size = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head, or turn the client away."""
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            transport.write(_FULL)
            transport.close()
            self._tell()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._await_no_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless a head grows too large with it."""
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        self._head_size += len(data)
        if self._head_size > self.head_bytes and self._idle():
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._deadline is None:
            self._await_head()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_size = 0

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        self._await_no_head()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """What comes now is the next one's head."""
        super().on_message_complete()
        self._in_head = True

    def _tell(self) -> None:
        now_s = self.loop.time()
        if now_s >= BoundedHttp._tell_s:
            BoundedHttp._tell_s = now_s + _TELL_EVERY_S
            _log.warning("%d clients are connected, others are turned away: raise ulimit -n", len(self.connections))

    def _idle(self) -> bool:
        """Whether no reply is on its way: the head of a request that was sent behind it may wait as long as that."""
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(self.head_s, self._too_late)

    def _await_no_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        if self._idle():
            self.transport.close()
        else:
            self._await_head()


def most_connections() -> int:
    """Return how many clients one listener may have: what the system lets open is for engines too, and for the log."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(1, soft * 2 // 5)
