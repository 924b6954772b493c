"""What the control plane does to engines: open, close, pause, resume; and the KV that moves when one closes."""

from __future__ import annotations

import math

from . import heap, prefix_cache, queues
from .batching import list_batch, sorted_in
from .cancellation import running_tokens
from .compiler import entry_kernel, inner_kernel
from .decoding import interrupt, list_deciding, schedule, settle
from .executions import set_timer
from .routing import enqueue, leave_home, route
from .state import (
    DECODE,
    IDLE,
    KIND_SHIFT,
    MOVING,
    PREFILL,
    RUNNING,
    STOPPED,
    TRANSFER_TIMER,
    State,
)


@entry_kernel
def open_engine(state: State, index: int) -> None:
    """Admit from now on."""
    state.engines[index].open = 1


@entry_kernel
def place_held(state: State) -> None:
    """Route the requests held for want of an engine, in order."""
    held = state.queues[2 * state.world[0].engines]
    waiting = held.head
    while waiting >= 0:
        following = state.requests[waiting].next
        if route(state, waiting) >= 0:
            queues.unlink(held, state.requests, waiting)
            enqueue(state, waiting)
        waiting = following


@entry_kernel
def pause_engine(state: State, index: int) -> None:
    """Stop at the end of the iteration or prefill that is on."""
    engine = state.engines[index]
    engine.paused = 1
    if engine.phase == DECODE:
        interrupt(state, index)


@entry_kernel
def resume_engine(state: State, index: int, flush: bool) -> None:
    """Go on; with `flush` all KV is forgotten first, at the end of what is still on."""
    engine = state.engines[index]
    engine.paused = 0
    if flush:
        engine.flush = 1
    if engine.phase in (IDLE, STOPPED):
        list_deciding(state, index)


@inner_kernel
def _list_queue(state: State, count: int, queue: int) -> int:
    """Move a queue's requests to `State.scratch` after `count` others; returns the new count."""
    member = state.queues[queue].head
    queues.clear(state.queues[queue])
    while member >= 0:
        state.scratch[0, count] = member
        count += 1
        member = state.requests[member].next
    return count


@inner_kernel
def _list_inbound(state: State, count: int, index: int) -> int:
    """Stop the transfers towards an engine and list their requests, in the order of the transfers."""
    world = state.world[0]
    first = count
    timer = 0
    while timer < world.timers:
        order, item = state.timers[timer].order, state.timers[timer].item
        if order >> KIND_SHIFT == TRANSFER_TIMER and state.requests[item].engine == index:
            sorted_in(state, first, count, order, item)
            count += 1
            heap.remove(state.timers, world.timers, timer)
            world.timers -= 1
            timer = 0  # the heap is in another order now
        else:
            timer += 1
    return count


@inner_kernel
def _list_all(state: State, index: int) -> int:
    """List an engine's requests in `State.scratch`: running, in prefill, waiting, on the way; returns how many."""
    count = list_batch(state, index)
    for place in range(count):
        member = state.scratch[0, place]
        state.requests[member].generated_tokens = running_tokens(state, member)
    count = _list_queue(state, count, state.world[0].engines + index)
    count = _list_queue(state, count, index)
    return _list_inbound(state, count, index)


@inner_kernel
def _empty(state: State, index: int) -> None:
    """An engine that has nothing and serves nobody."""
    engine = state.engines[index]
    now_s = state.world[0].now_s
    if engine.phase in (DECODE, PREFILL):
        engine.busy_s += now_s - engine.busy_since_s
    if engine.phase == PREFILL:
        engine.prefill_s += now_s - engine.busy_since_s
    schedule(state.engines, state.winners, index, math.inf)
    for thread in range(state.threads.shape[0]):
        if state.threads[thread].home == index:
            leave_home(state, thread)
    engine.phase = IDLE
    engine.open = 0
    engine.paused = 0
    engine.flush = 0
    engine.running = 0
    engine.reserved_tokens = 0
    engine.context_tokens = 0


@entry_kernel
def close_engine(state: State, index: int, migrate: bool) -> None:
    """Leave serving now: requests keep their whole tokens and go elsewhere at once, all KV here is lost or follows."""
    engine = state.engines[index]
    if engine.phase == DECODE:
        settle(state, index)
    moved = _list_all(state, index)
    _empty(state, index)
    now_s = state.world[0].now_s
    for place in range(moved):
        member = state.scratch[0, place]
        request = state.requests[member]
        request.carried = 0
        target = route(state, member)
        if request.stage == RUNNING and migrate and target >= 0 and math.isfinite(engine.migration_s_per_token):
            tokens = request.input_tokens + request.generated_tokens
            engine.transfers_end_s = max(engine.transfers_end_s, now_s) + tokens * engine.migration_s_per_token
            request.stage = MOVING
            set_timer(state, engine.transfers_end_s, TRANSFER_TIMER, member)
        else:
            enqueue(state, member)


@inner_kernel
def end_transfer(state: State, index: int) -> None:
    """A request's KV is here: as much as fits becomes its thread's idle entry, then the request joins the queue."""
    request = state.requests[index]
    engine = state.engines[request.engine]
    thread = state.threads[request.thread]
    tokens = request.input_tokens + request.generated_tokens
    engine.migrated_tokens += tokens
    if thread.home == request.engine and thread.holder < 0:
        if thread.idle:
            prefix_cache.drop(engine, state.threads, request.thread)
        room = engine.kv_tokens - engine.reserved_tokens
        kept = min(tokens, room)
        excess = engine.idle_tokens + kept - room
        if excess > 0:
            prefix_cache.evict(engine, state.threads, excess, -1)
        if kept > 0:
            prefix_cache.keep(engine, state.threads, request.thread, kept)
            request.carried = 1
    enqueue(state, index)
