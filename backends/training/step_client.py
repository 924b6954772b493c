"""A satellite's side of the core's HTTP service; it blocks, as the trainer that it works for does."""

from __future__ import annotations

import hashlib
import http.client
import json
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import numpy as np

from gyre.arrays import Float32Array

from .elastic_step import Claim, GoneError
from .figures import Figures
from .step_info import DIGEST_HEADER, FIGURES_HEADER, MICRO_STEP_HEADER, StepInfo, digest_of, raw_bytes

_CHUNK_BYTES: Final = 1 << 20


class CoreLostError(Exception):
    """The core does not answer, or not as it should: try again later."""


class StepClient:
    """Speaks for one cell, over one connection that is made again when it broke."""

    def __init__(self, address: str, key: str, cell: int, *, timeout_s: float = 30.0) -> None:
        """Take the core's address, `http://host:port`; `timeout_s` is of every wait for a byte."""
        parts = urlsplit(address)
        assert parts.hostname is not None
        self._cell = cell
        self._headers = {"Authorization": f"Bearer {key}"}
        self._timeout_s = timeout_s
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)

    def info(self, wait_s: float) -> StepInfo | None:
        """Return the open step, waiting for one; None if there is none."""
        response = self._request("GET", f"/step?cell={self._cell}&wait_s={wait_s}")
        body = self._rest(response)
        return None if response.status == 204 else StepInfo.from_json(body.decode())

    def fetch(self, info: StepInfo) -> Float32Array:
        """Return the weights of a step, (N,); see `SnapshotSource`."""
        response = self._request("GET", f"/snapshots/{info.version}")
        values = np.empty(info.size, np.float32)
        data, at, hashed = raw_bytes(values), 0, hashlib.sha256()
        try:
            while at < len(data) and (read := response.readinto(data[at : at + _CHUNK_BYTES])):
                hashed.update(data[at : at + read])
                at += read
            whole = at == len(data) and not response.read(1)
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from error
        if not whole or hashed.hexdigest() != info.digest:
            self.close()
            raise CoreLostError(f"the snapshot of version {info.version} came damaged")
        return values

    def claim(self, attempt: str, wait_s: float) -> Claim | None:
        """Take a micro-step; None if there is none now.

        Raises:
            GoneError: the attempt is over.
        """
        response = self._request("POST", f"/attempts/{attempt}/claims?cell={self._cell}&wait_s={wait_s}")
        body = self._rest(response)
        return None if response.status == 204 else Claim(int(response.headers[MICRO_STEP_HEADER]), body)

    def send(self, attempt: str, number: int, gradient: Float32Array, figures: Figures) -> bool:
        """Return a micro-step's gradient (N,); False if another cell had done it.

        Raises:
            GoneError: the attempt is over.
        """
        headers = {DIGEST_HEADER: digest_of(gradient), FIGURES_HEADER: figures.to_json()}
        path = f"/attempts/{attempt}/gradients/{number}?cell={self._cell}"
        response = self._request("PUT", path, raw_bytes(gradient), headers)
        return bool(json.loads(self._rest(response))["committed"])

    def leaving(self) -> None:
        """Say that this cell is about to leave: what another client of it waits for is answered at once."""
        try:
            self._rest(self._request("POST", f"/cells/{self._cell}/leaving"))
        finally:
            self.close()  # hours may pass until the next time, and a server does not keep idle connections so long

    def leave(self) -> None:
        """Say that this cell trains no more."""
        self._rest(self._request("POST", f"/cells/{self._cell}/leave"))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close."""
        self.close()

    def _request(
        self, method: str, path: str, body: memoryview | None = None, headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Send a request; return the response to a good one, whose body is still to be read."""
        try:
            self._connection.request(method, path, body, {**self._headers, **(headers or {})})
            response = self._connection.getresponse()
            if response.status < 400:
                return response
            why = response.read(1 << 12).decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from error
        self.close()
        if response.status == 410:
            raise GoneError(why)
        raise CoreLostError(f"{method} {path.partition('?')[0]}: {response.status} {why}")

    def _rest(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> CoreLostError:
        self.close()
        return CoreLostError(f"{type(error).__name__}: {error}")
