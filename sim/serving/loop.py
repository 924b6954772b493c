"""The event loop between two actions of the control plane."""

from __future__ import annotations

import math

from . import heap
from .batching import decide, reach_boundary
from .cancellation import end_early
from .compiler import entry_kernel, inner_kernel
from .control import end_transfer
from .executions import finish_execution
from .routing import enqueue, route
from .state import DEADLINE_TIMER, DECIDING, KIND_SHIFT, START_TIMER, TRANSFER_TIMER, VACANT, State


@inner_kernel
def _fire_timer(state: State) -> None:
    world = state.world[0]
    kind, item = state.timers[0].order >> KIND_SHIFT, state.timers[0].item
    heap.remove(state.timers, world.timers, 0)
    world.timers -= 1
    if kind == START_TIMER:
        route(state, item)
        enqueue(state, item)
    elif kind == TRANSFER_TIMER:
        end_transfer(state, item)
    elif kind == DEADLINE_TIMER:
        end_early(state, item)
    else:
        finish_execution(state, item)


@inner_kernel
def _decide_all(state: State) -> None:
    world = state.world[0]
    for place in range(world.deciding):
        index = state.deciding[place]
        state.engines[index].listed = 0
        if state.engines[index].phase == DECIDING:
            decide(state, index)
    world.deciding = 0


@inner_kernel
def _take_ended(state: State) -> int:
    world = state.world[0]
    slot = state.ended[0]
    world.ended -= 1
    for place in range(world.ended):
        state.ended[place] = state.ended[place + 1]
    state.executions[slot].stage = VACANT
    return int(slot)


@entry_kernel
def advance(state: State, until_s: float) -> int:
    """Run the events up to `until_s`; stop at an execution's end and return its slot, else -1.

    At one time: boundaries by engine, then ends, then timers by kind, then decisions.
    """
    world = state.world[0]
    while True:
        boundary = state.winners[1]
        boundary_s = state.engines[boundary].next_s
        if boundary_s <= world.now_s:
            reach_boundary(state, boundary)
            continue
        if world.ended > 0:
            return _take_ended(state)
        timer_s = state.timers[0].key if world.timers > 0 else math.inf
        if timer_s <= world.now_s:
            _fire_timer(state)
            continue
        world.decided = 1
        if world.deciding > 0:
            _decide_all(state)
            continue
        next_s = min(boundary_s, timer_s)
        if next_s > until_s or math.isinf(next_s):
            if math.isfinite(until_s):
                world.now_s = until_s
            return -1
        world.now_s = next_s
        world.decided = 0
