"""What an engine does at its boundaries: admit and prefill, decode, or idle."""

from __future__ import annotations

import math

from . import heap, prefix_cache, queues
from .compiler import inner_kernel
from .decoding import count_iterations, list_deciding, schedule, start_run
from .executions import finish_call
from .routing import head_fits, reservation
from .state import FILLING, IDLE, PREFILL, QUEUED, RUNNING, STOPPED, Record, State


@inner_kernel
def _cached_tokens(state: State, index: int, request: Record) -> int:
    """Leading tokens of a request that an engine need not compute; at least its last input token it must."""
    cached = 0
    if request.carried:
        thread = state.threads[request.thread]
        if thread.home == index and thread.idle:
            cached = thread.resident_tokens
    elif request.prefix_thread >= 0:
        thread = state.threads[request.prefix_thread]
        if thread.home == index:
            cached = min(request.prefix_tokens, thread.resident_tokens)
    return int(min(cached, request.input_tokens + request.generated_tokens - 1))


@inner_kernel
def _reserve(state: State, index: int, head: int, cached: int) -> None:
    """Give a request its KV: its thread's own entry first, then free room, then what others leave idle."""
    request = state.requests[head]
    engine = state.engines[index]
    thread = state.threads[request.thread]
    if thread.home == index:
        if thread.idle:
            prefix_cache.drop(engine, state.threads, request.thread)
        thread.holder = head
        thread.resident_tokens = cached
    engine.reserved_tokens += reservation(engine, request)
    excess = engine.reserved_tokens + engine.idle_tokens - engine.kv_tokens
    if excess > 0:
        prefix_cache.evict(engine, state.threads, excess, request.prefix_thread)


@inner_kernel
def _admit(state: State, index: int, head: int, cached: int) -> None:
    """Move the head of an engine's queue into its prefill batch."""
    request = state.requests[head]
    engine = state.engines[index]
    queues.unlink(state.queues[index], state.requests, head)
    _reserve(state, index, head, cached)
    context = request.input_tokens + request.generated_tokens
    known = context - 1 if request.admitted else min(request.prefix_tokens, context - 1)
    engine.prefilled_tokens += context - cached
    engine.cached_tokens += cached
    engine.recomputed_tokens += known - cached
    request.admission = engine.admissions
    engine.admissions += 1
    request.stage = FILLING
    request.admitted = 1
    request.carried = 0
    queues.append(state.queues[state.world[0].engines + index], state.requests, head)


@inner_kernel
def _start_prefill(state: State, index: int) -> bool:
    """Admit from the head of the queue what fits and begin its prefill; False if nothing could be admitted."""
    engine = state.engines[index]
    taken = 0
    duration_s = engine.prefill_base_s
    while head_fits(state, index):
        head = state.queues[index].head
        request = state.requests[head]
        cached = _cached_tokens(state, index, request)
        new = request.input_tokens + request.generated_tokens - cached
        if taken > 0 and taken + new > engine.max_prefill_tokens:
            break
        taken += new
        duration_s += engine.prefill_token_s * new + engine.prefill_attention_s * (new * (cached + 0.5 * new))
        _admit(state, index, head, cached)
    if taken == 0:
        return False
    engine.phase = PREFILL
    engine.busy_since_s = state.world[0].now_s
    schedule(state.engines, state.winners, index, engine.busy_since_s + duration_s)
    return True


@inner_kernel
def _end_prefill(state: State, index: int) -> None:
    """Every admitted sequence has its next token; those with more to come join the batch."""
    engine = state.engines[index]
    filled = state.queues[state.world[0].engines + index]
    head = filled.head
    queues.clear(filled)
    while head >= 0:
        request = state.requests[head]
        following = request.next
        thread = state.threads[request.thread]
        if thread.holder == head:
            thread.resident_tokens = request.input_tokens + request.generated_tokens
        request.generated_tokens += 1
        engine.decoded_tokens += 1
        left = request.output_tokens - request.generated_tokens
        if left == 0:
            finish_call(state, head)
        else:
            request.stage = RUNNING
            request.finish_iteration = engine.iteration + left
            heap.push(state.batches[index], engine.running, request.finish_iteration, request.admission, head)
            engine.context_tokens += request.input_tokens + request.generated_tokens
            engine.running += 1
        head = following


@inner_kernel
def _end_run(state: State, index: int) -> None:
    """A decode run is over; sequences at their output length finish, in order of admission."""
    engine = state.engines[index]
    count_iterations(engine, engine.run_iterations)
    batch = state.batches[index]
    while engine.running > 0 and batch[0].key == engine.iteration:
        finished = batch[0].item
        heap.remove(batch, engine.running, 0)
        engine.running -= 1
        request = state.requests[finished]
        engine.context_tokens -= request.input_tokens + request.output_tokens
        finish_call(state, finished)


@inner_kernel
def reach_boundary(state: State, index: int) -> None:
    """The present run or prefill of an engine ends now."""
    engine = state.engines[index]
    busy_s = state.world[0].now_s - engine.busy_since_s
    engine.busy_s += busy_s
    schedule(state.engines, state.winners, index, math.inf)
    if engine.phase == PREFILL:
        engine.prefill_s += busy_s
        _end_prefill(state, index)
    else:
        _end_run(state, index)
    list_deciding(state, index)


@inner_kernel
def sorted_in(state: State, first: int, count: int, key: int, index: int) -> None:
    """Insert a request into `State.scratch`, where those from `first` to `count` are in the order of their keys."""
    requests, keys = state.scratch[0], state.scratch[1]
    place = count
    while place > first and keys[place - 1] > key:
        requests[place], keys[place] = requests[place - 1], keys[place - 1]
        place -= 1
    requests[place], keys[place] = index, key


@inner_kernel
def list_batch(state: State, index: int) -> int:
    """Put an engine's decode batch into `State.scratch`, in order of admission; returns how many there are."""
    engine = state.engines[index]
    for count in range(engine.running):
        sequence = state.batches[index, count]
        sorted_in(state, 0, count, sequence.order, sequence.item)
    return int(engine.running)


@inner_kernel
def _flush(state: State, index: int) -> None:
    """Forget all KV: running sequences go back to the front of the queue, to be prefilled with what they generated."""
    engine = state.engines[index]
    for place in range(list_batch(state, index) - 1, -1, -1):
        member = state.scratch[0, place]
        request = state.requests[member]
        request.generated_tokens = request.output_tokens - (request.finish_iteration - engine.iteration)
        request.stage = QUEUED
        thread = state.threads[request.thread]
        if thread.holder == member:
            thread.holder = -1
            thread.resident_tokens = 0
        queues.prepend(state.queues[index], state.requests, member)
    engine.running = 0
    engine.reserved_tokens = 0
    engine.context_tokens = 0
    engine.flush = 0
    prefix_cache.flush(engine, state.threads)


@inner_kernel
def decide(state: State, index: int) -> None:
    """At a boundary or when idle: stop if paused, else prefill, else decode, else idle."""
    engine = state.engines[index]
    if engine.paused:
        engine.phase = STOPPED
        return
    if engine.flush:
        _flush(state, index)
    if _start_prefill(state, index):
        return
    if engine.running > 0:
        start_run(state, index)
    else:
        engine.phase = IDLE
