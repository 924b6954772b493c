"""What goes over the wire between a client and the proxy: passed on and kept, with times; held back on demand."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

_PIECE: Final = 1 << 16


@dataclass(slots=True, eq=False)
class Tapped:
    """One connection. Times are in seconds of `time.monotonic`."""

    opened_s: float
    sent: list[tuple[float, bytes]] = field(default_factory=list)  # by the client
    replied: list[tuple[float, bytes]] = field(default_factory=list)  # by the proxy, as far as it was passed on

    def requests(self) -> bytes:
        """What the client sent."""
        return b"".join(data for _, data in self.sent)

    def replies(self) -> bytes:
        """What it got."""
        return b"".join(data for _, data in self.replied)


class WireTap:
    """Listens at an address of its own and passes on to `upstream`.

    While upstream is not there it does not listen either (`close`, `open`), so that a client meets what it would
    meet without it. `hold` swallows what upstream says, as a network does that has lost it.
    """

    def __init__(self, upstream: str, port: int) -> None:
        self._upstream = urlsplit(upstream)
        self.port = port
        self.connections: list[Tapped] = []
        self._holding = False
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        """Listen, and pass on what upstream says."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def close(self) -> None:
        """Break every connection off and listen no more."""
        asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result(10)

    def hold(self) -> None:
        """From now on, until the next `open`, nothing that upstream says arrives."""
        self._holding = True

    def end(self) -> None:
        """Close, and end the thread."""
        self.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        self._holding = False
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)

    async def _leave(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._upstream.hostname
        assert self._upstream.port
        kept = Tapped(time.monotonic())
        self.connections.append(kept)
        self._open.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        except OSError:
            writer.transport.abort()
            self._open.discard(writer)
            return
        self._open.add(far_writer)
        await asyncio.gather(
            self._pass(reader, far_writer, kept.sent), self._pass(far_reader, writer, kept.replied, holdable=True)
        )

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        kept: list[tuple[float, bytes]],
        *,
        holdable: bool = False,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE):
                if holdable and self._holding:
                    continue
                kept.append((time.monotonic(), data))
                writer.write(data)
                await writer.drain()
        if holdable and self._holding:
            return  # its end does not arrive either
        with suppress(OSError):
            writer.close()
        self._open.discard(writer)


@contextmanager
def wire_tap(upstream: str, port: int) -> Iterator[WireTap]:
    """Run one that listens."""
    tap = WireTap(upstream, port)
    tap.open()
    try:
        yield tap
    finally:
        tap.end()
