"""Sticky-least-loaded routing: which engine takes a request, and the home of its thread."""

from __future__ import annotations

import math

from . import prefix_cache, queues
from .compiler import inner_kernel
from .decoding import interrupt, list_deciding
from .state import DECODE, IDLE, QUEUED, Record, State


@inner_kernel
def reservation(engine: Record, request: Record) -> int:
    """KV tokens that a request holds on an engine from admission to its end."""
    return int(request.input_tokens + request.output_tokens + engine.kv_sequence_tokens)


@inner_kernel
def _takes(engine: Record, request: Record) -> bool:
    return bool(engine.open and reservation(engine, request) <= engine.kv_tokens)


@inner_kernel
def leave_home(state: State, index: int) -> None:
    """Free what a thread's home holds for it and stop counting it there."""
    thread = state.threads[index]
    if thread.home < 0:
        return
    home = state.engines[thread.home]
    if thread.idle:
        prefix_cache.drop(home, state.threads, index)
    if thread.calls_left > 0:
        home.load -= 1
    thread.home = -1
    thread.holder = -1
    thread.resident_tokens = 0


@inner_kernel
def _choose(state: State, request: Record) -> int:
    """Engine for a request, -1 if none that is open can take it."""
    world = state.world[0]
    least = -1
    for index in range(world.engines):
        engine = state.engines[index]
        if _takes(engine, request) and (least < 0 or engine.load < least):
            least = engine.load
    if least < 0:
        return -1
    home = state.threads[request.thread].home
    sticky = home >= 0 and _takes(state.engines[home], request)
    if sticky and (math.isinf(world.rebalance) or state.engines[home].load <= world.rebalance * least + 1.0):
        return int(home)
    index = world.rotation
    while not (_takes(state.engines[index], request) and state.engines[index].load == least):
        index = (index + 1) % world.engines
    world.rotation = (index + 1) % world.engines
    return int(index)


@inner_kernel
def route(state: State, index: int) -> int:
    """Assign a request to an engine, its thread's home from now on; -1 and no change if no open engine can take it."""
    request = state.requests[index]
    target = _choose(state, request)
    request.engine = target
    thread = state.threads[request.thread]
    if target >= 0 and thread.home != target:
        leave_home(state, request.thread)
        thread.home = target
        state.engines[target].load += 1
    return target


@inner_kernel
def head_fits(state: State, index: int) -> bool:
    """Whether an engine could admit the head of its queue: idle KV never stands in the way, for it can be evicted."""
    head = state.queues[index].head
    if head < 0:
        return False
    engine = state.engines[index]
    admitted = engine.running + state.queues[state.world[0].engines + index].length
    reserved = engine.reserved_tokens + reservation(engine, state.requests[head])
    return bool(admitted < engine.max_running and reserved <= engine.kv_tokens)


@inner_kernel
def wake(state: State, index: int) -> None:
    """Have an engine decide as soon as its rules let it admit the head of its queue."""
    engine = state.engines[index]
    if engine.paused:
        return
    if engine.phase == IDLE:
        if state.queues[index].head >= 0:
            list_deciding(state, index)
    elif engine.phase == DECODE and head_fits(state, index):
        interrupt(state, index)


@inner_kernel
def enqueue(state: State, index: int) -> None:
    """Put a routed request at the end of its engine's queue; without an engine, of the queue for want of one."""
    request = state.requests[index]
    request.stage = QUEUED
    if request.engine < 0:
        queues.append(state.queues[2 * state.world[0].engines], state.requests, index)
        return
    queues.append(state.queues[request.engine], state.requests, index)
    wake(state, request.engine)
