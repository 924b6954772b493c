"""Cancellation: an execution gives back everything it holds, wherever its requests are."""

from __future__ import annotations

from . import heap, queues
from .compiler import entry_kernel, inner_kernel
from .decoding import settle
from .executions import free_request, report_end, stop_timer
from .routing import reservation, wake
from .state import (
    DEADLINE_TIMER,
    DECODE,
    ENDED,
    FILLING,
    FREE,
    MOVING,
    QUEUED,
    SETUP_TIMER,
    START_TIMER,
    TOOL,
    TRANSFER_TIMER,
    VACANT,
    State,
)


@inner_kernel
def running_tokens(state: State, index: int) -> int:
    """Tokens that a sequence of the batch has, counted to its engine's last settled iteration."""
    request = state.requests[index]
    return int(request.output_tokens - (request.finish_iteration - state.engines[request.engine].iteration))


@inner_kernel
def _leave_engine(state: State, index: int) -> None:
    """Take a cancelled request out of the engine that serves it; an iteration or prefill that is on goes on."""
    request = state.requests[index]
    target = request.engine
    engine = state.engines[target]
    engine.reserved_tokens -= reservation(engine, request)
    if state.threads[request.thread].holder == index:
        state.threads[request.thread].holder = -1
        state.threads[request.thread].resident_tokens = 0
    if request.stage == FILLING:
        queues.unlink(state.queues[state.world[0].engines + target], state.requests, index)
        return
    if engine.phase == DECODE:
        settle(state, target)
    request.generated_tokens = running_tokens(state, index)
    engine.context_tokens -= request.input_tokens + request.generated_tokens
    batch = state.batches[target]
    heap.remove(batch, engine.running, heap.find(batch, engine.running, index))
    engine.running -= 1


@inner_kernel
def _cancel_request(state: State, index: int) -> None:
    request = state.requests[index]
    if request.stage == TOOL:
        stop_timer(state, START_TIMER, index)
    elif request.stage == MOVING:
        stop_timer(state, TRANSFER_TIMER, index)
    elif request.stage == QUEUED:
        queue = request.engine if request.engine >= 0 else 2 * state.world[0].engines
        queues.unlink(state.queues[queue], state.requests, index)
    else:
        _leave_engine(state, index)
    state.executions[request.execution].generated_tokens += request.generated_tokens
    free_request(state, index)


@inner_kernel
def end_early(state: State, slot: int) -> None:
    """Cancel all of an execution's requests and list it as ended now, with the reason it was started with."""
    for index in range(state.world[0].used_requests):
        if state.requests[index].stage != FREE and state.requests[index].execution == slot:
            _cancel_request(state, index)
    report_end(state, slot)
    for index in range(state.world[0].engines):
        wake(state, index)


@entry_kernel
def cancel_execution(state: State, slot: int) -> None:
    """End an execution without a report."""
    world = state.world[0]
    if state.executions[slot].stage != ENDED:
        stop_timer(state, SETUP_TIMER, slot)
        stop_timer(state, DEADLINE_TIMER, slot)
        end_early(state, slot)
    position = 0
    while state.ended[position] != slot:
        position += 1
    for later in range(position + 1, world.ended):
        state.ended[later - 1] = state.ended[later]
    world.ended -= 1
    state.executions[slot].stage = VACANT
