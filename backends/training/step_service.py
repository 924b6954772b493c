"""The core's HTTP service for satellites."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Final

import numpy as np
from aiohttp import web

from gyre.arrays import Float32Array

from .elastic_core import ElasticCore
from .elastic_step import GoneError
from .figures import Figures
from .step_info import DIGEST_HEADER, FIGURES_HEADER, MICRO_STEP_HEADER, raw_bytes

CHUNK_BYTES: Final = 1 << 20
LONGEST_WAIT_S: Final = 60.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StepService:
    """Serves one `ElasticCore`. A request that is not whole changes nothing.

    GET    /step?cell=&wait_s=                    the open step (`StepInfo`), 204 if there is none
    GET    /snapshots/{version}                   raw float32; 409 if another version is exposed
    POST   /attempts/{attempt}/claims?cell=&wait_s=   a micro-step, 204 if there is none; 410: the attempt is over
    PUT    /attempts/{attempt}/gradients/{micro_step}?cell=   raw float32, with digest and figures in headers
    POST   /cells/{cell}/leaving                  what the cell waits for is answered at once
    POST   /cells/{cell}/leave                    what the cell had claimed waits again
    """

    def __init__(self, core: ElasticCore, key: str) -> None:
        """`key` is what every request must bear."""
        self._core = core
        self._bearer = f"Bearer {key}"
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; return the address."""
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/step", self._info),
                web.get("/snapshots/{version:[0-9]+}", self._snapshot),
                web.post("/attempts/{attempt}/claims", self._claim),
                web.put("/attempts/{attempt}/gradients/{number:[0-9]+}", self._gradient),
                web.post("/cells/{cell:[0-9]+}/leaving", self._leaving),
                web.post("/cells/{cell:[0-9]+}/leave", self._leave),
            ]
        )
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=1.0,
            handler_cancellation=True,  # a dead cell must not go on waiting for work
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        bound = self._runner.addresses[0]
        return f"http://{bound[0]}:{bound[1]}"

    async def stop(self) -> None:
        """Stop listening; a second call does nothing."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode(), self._bearer.encode()):
            return web.Response(status=401, text="give the key of this run")
        try:
            return await handler(request)
        except GoneError as error:
            return web.Response(status=410, text=str(error))
        except ValueError as error:
            return web.Response(status=400, text=str(error))

    async def _info(self, request: web.Request) -> web.StreamResponse:
        info = await self._core.info(int(request.query["cell"]), _wait_s(request))
        return web.Response(status=204) if info is None else web.Response(text=info.to_json())

    async def _snapshot(self, request: web.Request) -> web.StreamResponse:
        version, digest, values = self._core.snapshot
        if version != int(request.match_info["version"]):
            return web.Response(status=409, text=f"version {version} is exposed")
        response = web.StreamResponse(headers={DIGEST_HEADER: digest})
        response.content_length = values.nbytes
        await response.prepare(request)
        data = raw_bytes(values)
        for begin in range(0, len(data), CHUNK_BYTES):
            async with asyncio.timeout(self._core.settings.transfer_timeout_s):
                await response.write(data[begin : begin + CHUNK_BYTES])
        await response.write_eof()
        return response

    async def _claim(self, request: web.Request) -> web.StreamResponse:
        cell = int(request.query["cell"])
        claim = await self._core.claim(request.match_info["attempt"], cell, _wait_s(request))
        if claim is None:
            return web.Response(status=204)
        return web.Response(body=claim.payload, headers={MICRO_STEP_HEADER: str(claim.number)})

    async def _gradient(self, request: web.Request) -> web.StreamResponse:
        attempt, cell = request.match_info["attempt"], int(request.query["cell"])
        self._core.check(attempt)  # before the body is read
        try:
            figures = Figures.from_json(request.headers.get(FIGURES_HEADER, ""))
        except (TypeError, KeyError) as error:
            raise ValueError(f"{FIGURES_HEADER}: {error}") from error
        gradient = await self._body(request)
        number = int(request.match_info["number"])
        committed = await self._core.commit(attempt, cell, number, gradient, figures)
        return web.json_response({"committed": committed})

    async def _body(self, request: web.Request) -> Float32Array:
        """Read a gradient; ValueError where it is not what was announced."""
        values = np.empty(len(self._core.snapshot[2]), np.float32)
        if request.content_length != values.nbytes:
            raise ValueError(f"a gradient has {values.nbytes} bytes here, {request.content_length} were announced")
        data, hashed, at = raw_bytes(values), hashlib.sha256(), 0
        while at < len(data):
            async with asyncio.timeout(self._core.settings.transfer_timeout_s):
                chunk = await request.content.read(CHUNK_BYTES)
            if not chunk:
                raise ValueError(f"the gradient ended after {at} of {len(data)} bytes")
            hashed.update(chunk)
            data[at : at + len(chunk)] = chunk
            at += len(chunk)
        if hashed.hexdigest() != request.headers.get(DIGEST_HEADER):
            raise ValueError("the gradient's digest does not fit: send it again")
        return values

    async def _leaving(self, request: web.Request) -> web.StreamResponse:
        await self._core.leaving(int(request.match_info["cell"]))
        return web.Response(status=204)

    async def _leave(self, request: web.Request) -> web.StreamResponse:
        await self._core.leave(int(request.match_info["cell"]))
        return web.Response(status=204)


def _wait_s(request: web.Request) -> float:
    return min(max(float(request.query.get("wait_s", "0")), 0.0), LONGEST_WAIT_S)
