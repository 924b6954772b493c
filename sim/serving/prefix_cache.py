"""Idle KV of an engine: one entry a thread, in a list from the least to the most recently idle."""

from __future__ import annotations

from .compiler import inner_kernel
from .state import Record, Records


@inner_kernel
def keep(engine: Record, threads: Records, index: int, tokens: int) -> None:
    """Make `tokens` of a thread's context the most recent idle entry of its home `engine`."""
    thread = threads[index]
    thread.idle = 1
    thread.resident_tokens = tokens
    thread.older = engine.newest
    thread.newer = -1
    if engine.newest >= 0:
        threads[engine.newest].newer = index
    else:
        engine.oldest = index
    engine.newest = index
    engine.idle_tokens += tokens


@inner_kernel
def drop(engine: Record, threads: Records, index: int) -> None:
    """Remove a thread's idle entry from its home `engine`."""
    thread = threads[index]
    if thread.older >= 0:
        threads[thread.older].newer = thread.newer
    else:
        engine.oldest = thread.newer
    if thread.newer >= 0:
        threads[thread.newer].older = thread.older
    else:
        engine.newest = thread.older
    engine.idle_tokens -= thread.resident_tokens
    thread.idle = 0
    thread.resident_tokens = 0


@inner_kernel
def _cut(engine: Record, threads: Records, index: int, tokens: int) -> int:
    """Evict up to `tokens` from the tail of one entry; returns how many went."""
    thread = threads[index]
    cut = min(tokens, thread.resident_tokens)
    engine.evicted_tokens += cut
    if cut == thread.resident_tokens:
        drop(engine, threads, index)
    else:
        thread.resident_tokens -= cut
        engine.idle_tokens -= cut
    return int(cut)


@inner_kernel
def evict(engine: Record, threads: Records, tokens: int, spared: int) -> None:
    """Evict `tokens` idle tokens, oldest entry first, the entry of thread `spared` last (-1: none)."""
    index = engine.oldest
    while tokens > 0 and index >= 0:
        newer = threads[index].newer
        if index != spared:
            tokens -= _cut(engine, threads, index, tokens)
        index = newer
    if tokens > 0:
        _cut(engine, threads, spared, tokens)


@inner_kernel
def flush(engine: Record, threads: Records) -> None:
    """Drop every idle entry."""
    while engine.oldest >= 0:
        drop(engine, threads, engine.oldest)
