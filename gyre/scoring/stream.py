"""What a command prints: its beginning and its end are kept, whatever is between is counted and thrown away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final, Self

_END_BYTES: Final = 2048


class Stream(asyncio.Protocol):
    """The reading end of a pipe."""

    def __init__(self, keep_bytes: int, flood_bytes: int, on_flood: Callable[[], None]) -> None:
        """Keep the first `keep_bytes`; call `on_flood` once there are more than `flood_bytes`."""
        self.kept = bytearray()
        self.total = 0  # bytes
        self._end = b""
        self._keep = keep_bytes
        self._most = flood_bytes
        self._on_flood = on_flood
        self._closed = asyncio.get_running_loop().create_future()
        self._transport: asyncio.ReadTransport | None = None

    @classmethod
    async def open(cls, keep_bytes: int, flood_bytes: int, on_flood: Callable[[], None]) -> tuple[Self, int]:
        """Return the reading end of a new pipe, and its writing end, which is to be closed once somebody has it."""
        reading, writing = os.pipe()
        try:
            stream = cls(keep_bytes, flood_bytes, on_flood)
            pipe = os.fdopen(reading, "rb", buffering=0)
            await asyncio.get_running_loop().connect_read_pipe(lambda: stream, pipe)
        except BaseException:
            os.close(writing)
            raise
        return stream, writing

    @property
    def flooded(self) -> bool:
        """Whether more came than anyone may print."""
        return self.total > self._most

    @property
    def cut(self) -> bool:
        """Whether something is missing from `kept`."""
        return self.total > len(self.kept)

    @property
    def last_line(self) -> str:
        """The last line that says something."""
        return next((line.strip() for line in reversed(self.last_text.split("\n")) if line.strip()), "")

    @property
    def last_text(self) -> str:
        """The end, whatever bytes it has."""
        return self._end.decode(errors="replace")

    async def ended(self, patience_s: float) -> None:
        """Wait until all writers have closed the pipe; after `patience_s` do not wait any longer. Close it."""
        try:
            await asyncio.wait({self._closed}, timeout=patience_s)
        finally:
            self.close()

    def close(self) -> None:
        """Read no more; a second call does nothing."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep what is to be kept."""
        was_flooded = self.flooded
        self.total += len(data)
        self.kept += data[: max(0, self._keep - len(self.kept))]
        self._end = data[-_END_BYTES:] if len(data) >= _END_BYTES else (self._end + data)[-_END_BYTES:]
        if self.flooded and not was_flooded:
            self._on_flood()

    def connection_lost(self, error: Exception | None) -> None:
        """End."""
        if not self._closed.done():
            self._closed.set_result(None)
