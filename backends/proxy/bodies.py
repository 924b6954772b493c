"""Requests' bodies: none of them, and not all together, may hold up or fill the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from .http_messages import BodyTooLargeError, ClientGoneError, Receive
from .limits import Bounds


class BodyTooSlowError(Exception):
    """It did not come in time."""


class BodiesFullError(Exception):
    """Bodies of other requests take all the room for now."""


class Bodies:
    """The bodies that are being read and parsed."""

    def __init__(self, bounds: Bounds) -> None:
        """Start with none."""
        self._bounds = bounds
        self._bytes = 0  # of all

    @asynccontextmanager
    async def read(self, receive: Receive, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Read a whole body; it counts as long as the context lasts.

        Raises:
            BodyTooLargeError: it has more bytes than one may have, as its header says or as they come.
            BodyTooSlowError: it is not whole in time.
            BodiesFullError: there is no room for it beside the others.
            ClientGoneError: it does not come to its end.
        """
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self._bounds.body_bytes:
            raise BodyTooLargeError
        parts: list[bytes] = []
        try:
            try:
                async with asyncio.timeout(self._bounds.body_s):
                    await self._fill(parts, receive)
            except TimeoutError as error:
                raise BodyTooSlowError from error
            yield b"".join(parts)
        finally:
            self._bytes -= sum(map(len, parts))

    async def _fill(self, parts: list[bytes], receive: Receive) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientGoneError
            part = message.get("body", b"")
            parts.append(part)
            self._bytes += len(part)
            size += len(part)
            if size > self._bounds.body_bytes:
                raise BodyTooLargeError
            if self._bytes > self._bounds.bodies_bytes:
                raise BodiesFullError
            more = message.get("more_body", False)
