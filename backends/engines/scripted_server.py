"""The scripted engine as a server that speaks what gyre uses of SGLang's HTTP interface, for tests and load tests.

`python -m gyre.backends.engines.scripted_server --port 30000 --tokens-per-s 80 --chunk-tokens 4`
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import click
import numpy as np
import orjson
from aiohttp import web

from gyre.trajectory.call import Finish

from .engine import Chunk, Generation, RequestRefusedError, Sampling
from .scripted import Pace, ScriptedEngine

_SETTINGS: Final = ("max_new_tokens", "min_new_tokens", "temperature", "top_p", "top_k")


@dataclass(slots=True)
class _Reply:
    """What SGLang keeps of a request to say in its next event."""

    rid: str
    incremental: bool
    token_ids: list[int] = field(default_factory=list)
    entries: list[tuple[float, int, None]] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def event(self, chunk: Chunk) -> dict[str, Any]:
        self.token_ids += chunk.token_ids
        self.entries += [(logprob, token, None) for logprob, token in zip(chunk.logprobs, chunk.token_ids, strict=True)]
        self.versions += chunk.versions
        start = len(self.token_ids) - len(chunk.token_ids) if self.incremental else 0
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": None if chunk.finish is None else {"type": chunk.finish.value},
            "weight_version": f"v{self.versions[-1] if self.versions else 0}",
            "output_token_logprobs": self.entries[start:],
            "completion_tokens": len(self.token_ids),
            "cached_tokens": chunk.cached_tokens,
        }
        if chunk.finish is not None and self.versions:
            meta["weight_versions"] = _spans(self.versions)
        return {"text": "", "output_ids": self.token_ids[start:], "meta_info": meta}


class ScriptedServer:
    """Serves one scripted engine; `incremental` is SGLang's `--incremental-streaming-output`."""

    def __init__(self, engine: ScriptedEngine, *, incremental: bool = True) -> None:
        self._engine = engine
        self._incremental = incremental
        self._running: set[str] = set()  # request ids

    def application(self) -> web.Application:
        """Return the server, to be run."""
        application = web.Application(client_max_size=1 << 28)
        application.add_routes(
            [
                web.post("/generate", self._generate),
                web.post("/abort_request", self._abort),
                web.post("/pause_generation", self._pause),
                web.post("/continue_generation", self._told(self._engine.resume)),
                web.get("/health", self._health),
                web.get("/server_info", self._info),
                web.get("/model_info", self._info),
            ]
        )
        return application

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        reply = _Reply(str(body["rid"]), self._incremental)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self._running.add(reply.rid)
        try:
            async for chunk in self._engine.generate(_generation(body)):
                if reply.rid not in self._running:  # aborted
                    chunk = Chunk((), (), (), Finish.ABORT)  # noqa: PLW2901
                await response.write(b"data: " + orjson.dumps(reply.event(chunk)) + b"\n\n")
                if chunk.finish is not None:
                    break
        except RequestRefusedError as error:
            failure = {"error": {"message": str(error), "code": 400}}
            await response.write(b"data: " + orjson.dumps(failure) + b"\n\n")
        finally:
            self._running.discard(reply.rid)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _abort(self, request: web.Request) -> web.Response:
        rid = (await request.json())["rid"]
        self._running = {running for running in self._running if not running.startswith(rid)}  # as SGLang does
        return web.Response()

    async def _pause(self, request: web.Request) -> web.Response:
        self._engine.pause(abort=(await request.json()).get("mode", "abort") == "abort")
        return web.Response()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if await self._engine.healthy() else 503)

    async def _info(self, request: web.Request) -> web.Response:
        info = await self._engine.info()
        return web.json_response(
            {
                "served_model_name": info.model,
                "weight_version": f"v{info.version}",
                "max_total_num_tokens": info.kv_tokens,
                "max_running_requests": info.max_running,
                "max_req_input_len": info.max_context_tokens,
            }
        )

    def _told(self, act: Callable[[], None]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            act()
            return web.Response()

        return handle


def _generation(body: dict[str, Any]) -> Generation:
    given = body["sampling_params"]
    settings = {name: given[name] for name in _SETTINGS if name in given}
    sampling = Sampling(**settings, stop_token_ids=tuple(given.get("stop_token_ids", ())))
    return Generation(str(body["rid"]), np.array(body["input_ids"], np.int32), sampling)


def _spans(versions: list[int]) -> list[dict[str, Any]]:
    starts = [at for at, version in enumerate(versions) if at == 0 or version != versions[at - 1]]
    ends = [*starts[1:], len(versions)]
    return [
        {"version": f"v{versions[start]}", "start": start, "end": end} for start, end in zip(starts, ends, strict=True)
    ]


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=30000, show_default=True)
@click.option("--tokens-per-s", default=80.0, show_default=True, help="Of each stream.")
@click.option("--chunk-tokens", default=1, show_default=True, help="Tokens in each event.")
@click.option("--first-token-s", default=0.0, show_default=True)
@click.option("--incremental/--cumulative", default=True, show_default=True, help="As SGLang with or without its flag.")
def main(host: str, port: int, tokens_per_s: float, chunk_tokens: int, first_token_s: float, incremental: bool) -> None:
    """Serve a scripted engine until interrupted."""
    pace = Pace(tokens_per_s, chunk_tokens, first_token_s)

    async def application() -> web.Application:
        return ScriptedServer(ScriptedEngine(f"http://{host}:{port}", pace=pace), incremental=incremental).application()

    web.run_app(application(), host=host, port=port, print=None)


if __name__ == "__main__":
    main()
