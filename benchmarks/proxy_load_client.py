"""The load: many streamed chat completions at once, by bare sockets, with the time of each byte's arrival.

What came is read only after the last stream has ended, so that the reading delays nothing. Figures go out as JSON.

    python benchmarks/proxy_load_client.py --url http://127.0.0.1:8080 --streams 100 --chunks 400 --ramp-s 5
"""

from __future__ import annotations

import asyncio
import bisect
import gc
import json
import re
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import click
import numpy as np
from proxy_load_cpu import cpu_s, waited_s
from proxy_load_engine import MODEL, STAMP_LENGTH, WRAP_US, sent_us

_CONTENT: Final = re.compile(rb'"content": ?"([A-Za-z0-9.-]+)"')
_GOLDEN: Final = 0.6180339887498949
_QUIET_S: Final = 60.0  # a stream that is silent for so long is lost


class Stream(asyncio.Protocol):
    """One request and what came of it. `on_chunk` hears how many chunks have come by now."""

    def __init__(self, request: bytes, follow: Any = None) -> None:
        self._request = request
        self._follow = follow
        self._came = 0
        self.parts: list[bytes] = []
        self.times_ns: list[int] = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Keep it."""
        self.times_ns.append(time.monotonic_ns())
        self.parts.append(data)
        if self._follow is not None:
            self._came += data.count(b'"content":"')
            self._follow(self._came)

    def connection_lost(self, error: Exception | None) -> None:
        """The reply is whole, or never will be."""
        if not self.ended.done():
            self.ended.set_result(None)

    def latencies_ms(self) -> list[float]:
        """Milliseconds of each chunk from its sending to the arrival of its last byte."""
        ends, at = [], 0
        for part in self.parts:
            at += len(part)
            ends.append(at)
        found: list[float] = []
        for match in _CONTENT.finditer(b"".join(self.parts)):
            arrived_us = self.times_ns[bisect.bisect_left(ends, match.end())] // 1000
            text = match[1].decode()
            stamps = [text[place : place + STAMP_LENGTH] for place in range(0, len(text), STAMP_LENGTH)]
            found += [(arrived_us - sent_us(one)) % WRAP_US / 1000 for one in stamps]
        return found

    def whole(self) -> bool:
        """Whether the reply came to its end."""
        return b"data: [DONE]" in b"".join(self.parts[-3:])


def request(url: str, key: str, chunks: int) -> bytes:
    """Write one request."""
    target = urlsplit(url)
    body = json.dumps(
        {
            "model": MODEL,
            "stream": True,
            "max_tokens": chunks * STAMP_LENGTH,
            "messages": [{"role": "system", "content": "Say the time."}, {"role": "user", "content": f"I am {key}."}],
        }
    ).encode()
    head = (
        f"POST {target.path}/v1/chat/completions HTTP/1.1\r\nHost: {target.netloc}\r\nConnection: close\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Tenths:
    """CPU-seconds of a process at each tenth of a reply."""

    def __init__(self, pid: int, chunks: int) -> None:
        self._pid = pid
        self._step = chunks // 10
        self.cpu_s = [cpu_s(pid)]

    def __call__(self, came: int) -> None:
        """Look, if it is time."""
        if came >= self._step * len(self.cpu_s):
            self.cpu_s.append(cpu_s(self._pid))


async def load(url: str, keys: Sequence[str], chunks: int, ramp_s: float, pid: int | None) -> dict[str, Any]:
    """Start a stream for each key, spread over `ramp_s`, and wait for all."""
    loop, target = asyncio.get_running_loop(), urlsplit(url)
    tenths = Tenths(pid, chunks) if pid and len(keys) == 1 else None
    start_s = loop.time()

    async def stream(place: int, key: str) -> Stream:
        # By the golden section, so that no two streams' chunks keep coming at one time.
        await asyncio.sleep(start_s + ramp_s * (place * _GOLDEN % 1.0) - loop.time())
        made: Stream
        _, made = await loop.create_connection(
            lambda: Stream(request(url, key, chunks), tenths), target.hostname, target.port
        )
        while not made.ended.done():
            seen = len(made.parts)
            await asyncio.wait([made.ended], timeout=_QUIET_S)
            if len(made.parts) == seen:
                break
        return made

    cpu_before, waited_before = (cpu_s(pid), waited_s(pid)) if pid else (0.0, 0.0)
    streams = await asyncio.gather(*(stream(place, key) for place, key in enumerate(keys)))
    figures = {"wall_s": loop.time() - start_s}
    if pid:
        figures |= {"cpu_s": cpu_s(pid) - cpu_before, "waited_s": waited_s(pid) - waited_before}
    return figures | summary(streams, chunks) | ({} if tenths is None else {"tenths_cpu_s": tenths.cpu_s})


def summary(streams: Sequence[Stream], chunks: int) -> dict[str, Any]:
    """Add up what came."""
    each = [stream.latencies_ms() for stream in streams]
    every = np.concatenate([np.array(latencies) for latencies in each])
    whole = sum(stream.whole() and len(latencies) == chunks for stream, latencies in zip(streams, each, strict=True))
    if not len(every):
        return {"whole": whole, "chunks": 0, "first": b"".join(streams[0].parts)[:300].decode(errors="replace")}
    p50, p99 = np.percentile(every, [50, 99])
    return {"whole": whole, "chunks": len(every), "p50_ms": p50, "p99_ms": p99, "max_ms": float(every.max())}


@click.command()
@click.option("--url", required=True, help="Without /v1.")
@click.option("--streams", type=int, default=100)
@click.option("--chunks", type=int, default=400, help="Of each stream.")
@click.option("--ramp-s", type=float, default=5.0)
@click.option("--pid", type=int, help="Process whose CPU time is taken.")
@click.option("--key", default="load", help="Keys are this and a number; a single one for all where it ends in '='.")
def main(url: str, streams: int, chunks: int, ramp_s: float, pid: int | None, key: str) -> None:
    """Run the load and print what came of it."""
    keys = [key.removesuffix("=") if key.endswith("=") else f"{key}-{number}" for number in range(streams)]
    gc.disable()
    print(json.dumps(asyncio.run(load(url, keys, chunks, ramp_s, pid))))


if __name__ == "__main__":
    main()
