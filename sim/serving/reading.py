"""What can be read off the state at any time, iterations that are under way included."""

from __future__ import annotations

import numpy as np

from .compiler import entry_kernel
from .decoding import iterations_done
from .spec import EngineMeters
from .state import DECODE, FREE, PREFILL, RUNNING, Int64Array, State


@entry_kernel
def _unsettled_iterations(state: State, index: int) -> int:
    """Whole iterations that an engine has done in its present run."""
    engine = state.engines[index]
    return iterations_done(engine, state.world[0].now_s) if engine.phase == DECODE else 0


@entry_kernel
def _count_generated(state: State, iterations: Int64Array, totals: Int64Array) -> None:
    """Tokens sampled so far by the execution in each slot (S,); `iterations` is room for a number an engine (K,)."""
    for slot in range(totals.shape[0]):
        totals[slot] = state.executions[slot].generated_tokens
    for index in range(iterations.shape[0]):
        iterations[index] = state.engines[index].iteration + _unsettled_iterations(state, index)
    for index in range(state.world[0].used_requests):
        request = state.requests[index]
        if request.stage == RUNNING:
            left = request.finish_iteration - iterations[request.engine]
            totals[request.execution] += request.output_tokens - left
        elif request.stage != FREE:
            totals[request.execution] += request.generated_tokens


def generated_tokens(state: State) -> Int64Array:
    """Tokens sampled so far by the execution in each slot (S,)."""
    totals = np.empty(len(state.executions), np.int64)
    _count_generated(state, np.empty(int(state.world["engines"][0]), np.int64), totals)
    return totals


def meters(state: State, index: int) -> EngineMeters:
    """One engine's meters now."""
    engine = state.engines[index]
    engines = int(state.world["engines"][0])
    under_way_s = float(state.world["now_s"][0] - engine["busy_since_s"])
    busy = engine["phase"] in (PREFILL, DECODE)
    iterations = _unsettled_iterations(state, index)
    return EngineMeters(
        running=int(engine["running"] + state.queues[engines + index]["length"]),
        waiting=int(state.queues[index]["length"]),
        kv_tokens=int(engine["reserved_tokens"] + engine["idle_tokens"]),
        busy_s=float(engine["busy_s"]) + (under_way_s if busy else 0.0),
        prefill_s=float(engine["prefill_s"]) + (under_way_s if engine["phase"] == PREFILL else 0.0),
        decoded_tokens=int(engine["decoded_tokens"] + iterations * engine["running"]),
        prefilled_tokens=int(engine["prefilled_tokens"]),
        cached_tokens=int(engine["cached_tokens"]),
        evicted_tokens=int(engine["evicted_tokens"]),
        migrated_tokens=int(engine["migrated_tokens"]),
        recomputed_tokens=int(engine["recomputed_tokens"]),
    )
