"""The life of an execution: its calls are released, finish and release others; it ends or is cancelled."""

from __future__ import annotations

from . import heap, prefix_cache
from .compiler import entry_kernel, inner_kernel
from .routing import leave_home, reservation
from .state import (
    DEADLINE_TIMER,
    ENDED,
    FINISHED,
    FREE,
    KIND_SHIFT,
    LIVE,
    SETUP_TIMER,
    START_TIMER,
    TOOL,
    State,
)


@inner_kernel
def set_timer(state: State, time_s: float, kind: int, item: int) -> None:
    """Have something happen at `time_s`; at one time by kind, then in the order of these calls."""
    world = state.world[0]
    heap.push(state.timers, world.timers, time_s, (kind << KIND_SHIFT) + world.sequence, item)
    world.timers += 1
    world.sequence += 1


@inner_kernel
def stop_timer(state: State, kind: int, item: int) -> None:
    """Forget the timer of this kind on this item, if there is one."""
    world = state.world[0]
    for index in range(world.timers):
        timer = state.timers[index]
        if timer.item == item and timer.order >> KIND_SHIFT == kind:
            heap.remove(state.timers, world.timers, index)
            world.timers -= 1
            return


@inner_kernel
def _release(state: State, slot: int, call: int, released_s: float) -> None:
    """A call's dependencies are met: it starts after its wait."""
    world = state.world[0]
    index = world.free_request
    request = state.requests[index]
    world.free_request = request.next
    world.used_requests = max(world.used_requests, index + 1)
    row = state.call_start[state.executions[slot].template] + call
    threads = slot * world.thread_stride
    prefix_call = state.prefix_call[row]
    request.execution = slot
    request.call = call
    request.thread = threads + state.thread[row]
    request.prefix_thread = -1
    if prefix_call >= 0:
        request.prefix_thread = threads + state.thread[row - call + prefix_call]
    request.engine = -1
    request.stage = TOOL
    request.carried = 0
    request.admitted = 0
    request.input_tokens = state.input_tokens[row]
    request.output_tokens = state.output_tokens[row]
    request.prefix_tokens = state.prefix_tokens[row]
    request.generated_tokens = 0
    set_timer(state, released_s + state.wait_s[row], START_TIMER, index)


@inner_kernel
def free_request(state: State, index: int) -> None:
    state.requests[index].stage = FREE
    state.requests[index].next = state.world[0].free_request
    state.world[0].free_request = index


@entry_kernel
def start_execution(state: State, slot: int, template: int, ready_s: float, deadline_s: float) -> None:
    """Start a row of the program in a slot that has its id, and the reason it ends with at its deadline, already."""
    world = state.world[0]
    execution = state.executions[slot]
    first, end = state.call_start[template], state.call_start[template + 1]
    execution.template = template
    execution.calls_left = end - first
    execution.generated_tokens = 0
    execution.stage = LIVE
    for local in range(state.thread_start[template + 1] - state.thread_start[template]):
        thread = state.threads[slot * world.thread_stride + local]
        thread.home = -1
        thread.holder = -1
        thread.idle = 0
        thread.resident_tokens = 0
        thread.calls_left = state.thread_calls[state.thread_start[template] + local]
    for row in range(first, end):
        if state.join[row] >= 0:
            state.joins[slot * world.join_stride + state.join[row]] = state.dependencies[row]
        if state.dependencies[row] == 0:
            _release(state, slot, row - first, ready_s)
    if first == end:
        set_timer(state, ready_s, SETUP_TIMER, slot)
    if deadline_s < float("inf"):
        set_timer(state, max(deadline_s, world.now_s), DEADLINE_TIMER, slot)


@inner_kernel
def report_end(state: State, slot: int) -> None:
    """Free what an execution without requests still holds and list it as ended now."""
    world = state.world[0]
    execution = state.executions[slot]
    execution.stage = ENDED
    execution.ended_s = world.now_s
    first = slot * world.thread_stride
    template = execution.template
    for index in range(first, first + state.thread_start[template + 1] - state.thread_start[template]):
        leave_home(state, index)
    state.ended[world.ended] = slot
    world.ended += 1


@inner_kernel
def finish_execution(state: State, slot: int) -> None:
    """All calls of an execution are done."""
    if state.executions[slot].reason != FINISHED:
        stop_timer(state, DEADLINE_TIMER, slot)
    state.executions[slot].reason = FINISHED
    report_end(state, slot)


@inner_kernel
def finish_call(state: State, index: int) -> None:
    """A request has its last token: its context becomes idle, the calls that waited for it are released."""
    request = state.requests[index]
    slot = request.execution
    execution = state.executions[slot]
    engine = state.engines[request.engine]
    thread = state.threads[request.thread]
    engine.reserved_tokens -= reservation(engine, request)
    if thread.holder == index:
        thread.holder = -1
        prefix_cache.keep(engine, state.threads, request.thread, request.input_tokens + request.output_tokens)
    thread.calls_left -= 1
    if thread.calls_left == 0 and thread.home >= 0:
        state.engines[thread.home].load -= 1
    execution.generated_tokens += request.output_tokens
    execution.calls_left -= 1
    first = state.call_start[execution.template]
    row = first + request.call
    free_request(state, index)
    now_s = state.world[0].now_s
    for edge in range(state.successor_start[row], state.successor_start[row + 1]):
        call = state.successor[edge]
        join = state.join[first + call]
        if join >= 0:
            join += slot * state.world[0].join_stride
            state.joins[join] -= 1
            if state.joins[join] > 0:
                continue
        _release(state, slot, call, now_s)
    if execution.calls_left == 0:
        finish_execution(state, slot)
