"""Requests read from their bodies: a large one by another process, so that no stream waits for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from .bodies import Bodies, BodiesFullError, BodyTooSlowError
from .body_workers import BodyWorkerLostError, BodyWorkers
from .conversation import Request
from .http_messages import BodyTooLargeError, Receive
from .limits import Bounds
from .read_request import read_request
from .refusals import RefusedError
from .reply import Failure
from .wire import Wire

_log = logging.getLogger(__name__)


class RequestReader:
    """Reads requests, all that come in together within the bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._bodies = Bodies(bounds)
        self._workers = BodyWorkers(bounds.body_workers)

    async def read(self, wire: Wire, headers: Mapping[str, str], receive: Receive) -> tuple[Request, str]:
        """Return a request and its digest.

        Raises:
            RefusedError: its body is compressed, too large, too slow in coming, or there is no room for it.
            BadRequestError: it cannot be understood.
            ClientGoneError: the client hung up before it was whole.
        """
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            what = "the body is compressed; send it as it is, without content-encoding"
            raise RefusedError(Failure("invalid_request", what), status=415)
        try:
            async with self._bodies.read(receive, headers) as raw:
                if len(raw) <= self._bounds.body_at_once_bytes:
                    return read_request(wire.name, raw, headers)
                return await self._apart(wire.name, raw, headers)
        except BodyTooLargeError as error:
            what = f"the body has more than {self._bounds.body_bytes} bytes"
            raise RefusedError(Failure("too_large", what)) from error
        except BodyTooSlowError as error:
            what = "the body took too long to come; try again"
            raise RefusedError(Failure("invalid_request", what), status=408) from error
        except BodiesFullError as error:
            what = "the proxy is reading too many bodies; wait, then try again"
            failure = Failure("overloaded", what, retry_after_s=self._bounds.retry_after_s)
            raise RefusedError(failure) from error

    async def _apart(self, wire: str, raw: bytes, headers: Mapping[str, str]) -> tuple[Request, str]:
        try:
            return await self._workers.read(wire, raw, headers)
        except BodyWorkerLostError as error:
            _log.warning("a process that read a body of %d bytes was lost: %s", len(raw), error)
            what = "the body could not be read; try again, or send a smaller one"
            raise RefusedError(Failure("overloaded", what, retry_after_s=self._bounds.retry_after_s)) from error

    async def close(self) -> None:
        """End the processes."""
        await self._workers.close()
