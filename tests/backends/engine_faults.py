"""Servers that misbehave, and short ways to ask an engine."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import numpy as np
from aiohttp import web

from gyre.backends.engines.engine import Chunk, Engine, Generation, Sampling

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def asked(new: int = 16, *, request_id: str = "r", inputs: int = 10, **settings: object) -> Generation:
    """A generation with inputs 0, 1, 2, ..."""
    return Generation(request_id, np.arange(inputs, dtype=np.int32), Sampling(new, **settings))  # type: ignore[arg-type]


async def until(condition: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait until something is true; a test whose condition never comes true says so instead of hanging."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"not true within {within_s:.0f} s: {inspect.getsource(condition).strip()}") from None


async def reply(engine: Engine, generation: Generation, most_chunks: int | None = None) -> list[Chunk]:
    """Every chunk of a reply, or the first ones; the iterator is closed then."""
    chunks: list[Chunk] = []
    async with aclosing(engine.generate(generation)) as stream:
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == most_chunks:
                break
    return chunks


def tokens(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def logprobs(chunks: list[Chunk]) -> list[float]:
    return [logprob for chunk in chunks for logprob in chunk.logprobs]


def versions(chunks: list[Chunk]) -> list[int]:
    """As a recorder would keep them."""
    if chunks and chunks[-1].exact_versions is not None:
        return list(chunks[-1].exact_versions)
    return [version for chunk in chunks for version in chunk.versions]


@asynccontextmanager
async def serving(application: web.Application) -> AsyncIterator[str]:
    """Serve on a free port of this machine; yields the address."""
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving_raw(*pieces: bytes, stay: bool = False) -> AsyncIterator[str]:
    """Answer each connection with these bytes, then cut it off, or `stay` silent."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        if stay:
            await reader.read()
        writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
