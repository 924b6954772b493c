"""An engine double whose reply is its own clock: each chunk spells the time at which it was sent.

It speaks what gyre uses of SGLang (`ScriptedServer`), and chat completions for proxies that only pass text on. The
clock is the system's monotonic one, which all processes share; five letters of 64 hold 30 bits of microseconds.

    python benchmarks/proxy_load_engine.py --port 30000 --tokenizer FOLDER --chunks-per-s 20
"""

from __future__ import annotations

import asyncio
import gc
import string
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Final

import click
import orjson
from aiohttp import web
from tokenizers import Tokenizer

from gyre.backends.engines.engine import Chunk, Generation
from gyre.backends.engines.scripted import ScriptedEngine
from gyre.backends.engines.scripted_server import ScriptedServer
from gyre.trajectory.call import Finish

LETTERS: Final = string.ascii_letters + string.digits + ".-"
STAMP_LENGTH: Final = 5  # tokens in a chunk, for each letter is one
WRAP_US: Final = 1 << (6 * STAMP_LENGTH)
MODEL: Final = "double"


def stamp() -> str:
    """Spell the time."""
    now_us = time.monotonic_ns() // 1000
    return "".join(LETTERS[now_us >> shift & 63] for shift in range(0, 6 * STAMP_LENGTH, 6))


def sent_us(text: str) -> int:
    """Read a stamp: microseconds, modulo WRAP_US."""
    return sum(LETTERS.index(letter) << 6 * place for place, letter in enumerate(text))


async def ticks(count: int, chunks_per_s: float) -> AsyncIterator[int]:
    """Count at a set pace, measured from the start, so that no delay adds up."""
    clock = asyncio.get_running_loop().time
    start_s = clock()
    for tick in range(1, count + 1):
        await asyncio.sleep(max(0.0, start_s + tick / chunks_per_s - clock()))
        yield tick


class StampingEngine(ScriptedEngine):
    """Sends as many chunks as the tokens that are asked for fill."""

    def __init__(self, name: str, tokenizer: Path, chunks_per_s: float) -> None:
        super().__init__(name)
        encode = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).encode
        self._ids = {letter: encode(letter, add_special_tokens=False).ids[0] for letter in LETTERS}
        self._chunks_per_s = chunks_per_s

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """See `Engine.generate`."""
        count = generation.sampling.max_new_tokens // STAMP_LENGTH
        async for tick in ticks(count, self._chunks_per_s):
            tokens = tuple(self._ids[letter] for letter in stamp())
            finish = Finish.STOP if tick == count else None
            yield Chunk(tokens, (-0.5,) * STAMP_LENGTH, (0,) * STAMP_LENGTH, finish)


class ChatDouble:
    """Chat completions of the same chunks."""

    def __init__(self, chunks_per_s: float) -> None:
        self._chunks_per_s = chunks_per_s

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer one request with a stream."""
        body = orjson.loads(await request.read())
        count = int(body.get("max_completion_tokens") or body["max_tokens"]) // STAMP_LENGTH
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for tick in ticks(count, self._chunks_per_s):
            await response.write(_event({"content": stamp()}, "stop" if tick == count else None))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def models(self, request: web.Request) -> web.Response:
        """Say what is served."""
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "double"}]})


def _event(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--tokenizer", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--chunks-per-s", type=float, required=True, help="Of each stream.")
def main(port: int, tokenizer: Path, chunks_per_s: float) -> None:
    """Serve until interrupted."""

    async def application() -> web.Application:
        served = ScriptedServer(StampingEngine(f"http://127.0.0.1:{port}", tokenizer, chunks_per_s)).application()
        chat = ChatDouble(chunks_per_s)
        served.add_routes([web.post("/v1/chat/completions", chat.complete), web.get("/v1/models", chat.models)])
        return served

    gc.disable()  # its pauses would look like the proxy's
    web.run_app(application(), host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main()
