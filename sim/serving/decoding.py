"""Decode runs: iterations of an unchanged batch, advanced in closed form.

A run of d iterations takes A d + B d (d - 1) / 2 seconds, with A its first step's time and B = c n its growth a step.
"""

from __future__ import annotations

import math

from .compiler import inner_kernel
from .state import DECIDING, DECODE, Int32Array, Record, Records, State


@inner_kernel
def schedule(engines: Records, winners: Int32Array, index: int, time_s: float) -> None:
    """Set when an engine's present run or prefill ends (inf: none is on) and replay its matches in the tournament."""
    engines[index].next_s = time_s
    node = ((winners.shape[0] >> 1) + index) >> 1
    while node > 0:
        left, right = winners[2 * node], winners[2 * node + 1]
        winners[node] = right if engines[right].next_s < engines[left].next_s else left
        node >>= 1


@inner_kernel
def list_deciding(state: State, index: int) -> None:
    """Have an engine decide what to do next once all else at this time has happened."""
    engine = state.engines[index]
    engine.phase = DECIDING
    if engine.listed == 0:
        engine.listed = 1
        world = state.world[0]
        state.deciding[world.deciding] = index
        world.deciding += 1


@inner_kernel
def boundary_s(engine: Record, iterations: int) -> float:
    """When the given number of iterations of the present run will have ended."""
    grown = engine.run_growth_s * (0.5 * iterations * (iterations - 1))
    return float(engine.run_start_s + (engine.run_step_s * iterations + grown))


@inner_kernel
def iterations_until(engine: Record, time_s: float) -> int:
    """Least number of iterations (1 to `run_iterations`) of the present run that end at `time_s` or later."""
    elapsed_s = max(time_s - engine.run_start_s, 0.0)
    linear = engine.run_step_s - 0.5 * engine.run_growth_s
    root = 2.0 * elapsed_s / (linear + math.sqrt(linear * linear + 2.0 * engine.run_growth_s * elapsed_s))
    iterations = max(min(int(min(root, 9e18)), engine.run_iterations), 1)
    while iterations > 1 and boundary_s(engine, iterations - 1) >= time_s:
        iterations -= 1
    while iterations < engine.run_iterations and boundary_s(engine, iterations) < time_s:
        iterations += 1
    return int(iterations)


@inner_kernel
def iterations_done(engine: Record, now_s: float) -> int:
    """Whole iterations of the present run that have ended by `now_s`."""
    iterations = iterations_until(engine, now_s)
    return iterations if boundary_s(engine, iterations) <= now_s else iterations - 1


@inner_kernel
def start_run(state: State, index: int) -> None:
    """Begin to decode the present batch, until its first sequence finishes."""
    engine = state.engines[index]
    now_s = state.world[0].now_s
    running = engine.running
    step_s = engine.step_base_s + engine.step_sequence_s * running + engine.step_context_s * engine.context_tokens
    if engine.step_expert_s > 0.0:
        step_s += engine.step_expert_s * (1.0 - (1.0 - engine.expert_share) ** running)
    engine.phase = DECODE
    engine.busy_since_s = now_s
    engine.run_start_s = now_s
    engine.run_step_s = step_s
    engine.run_growth_s = engine.step_context_s * running
    engine.run_iterations = state.batches[index, 0].key - engine.iteration
    schedule(state.engines, state.winners, index, boundary_s(engine, engine.run_iterations))


@inner_kernel
def interrupt(state: State, index: int) -> None:
    """End the present run at the next boundary at which the engine has not decided yet."""
    engine = state.engines[index]
    world = state.world[0]
    iterations = iterations_until(engine, world.now_s)
    if world.decided and boundary_s(engine, iterations) <= world.now_s:
        iterations += 1
    if iterations < engine.run_iterations:
        engine.run_iterations = iterations
        schedule(state.engines, state.winners, index, boundary_s(engine, iterations))


@inner_kernel
def count_iterations(engine: Record, iterations: int) -> None:
    """Give each sequence of the batch a token an iteration."""
    engine.iteration += iterations
    engine.context_tokens += iterations * engine.running
    engine.decoded_tokens += iterations * engine.running


@inner_kernel
def settle(state: State, index: int) -> None:
    """Bring a decoding engine's counts up to now; the iteration that is on, if any, becomes a run of its own."""
    engine = state.engines[index]
    world = state.world[0]
    done = iterations_done(engine, world.now_s)
    ended_s = boundary_s(engine, done)
    count_iterations(engine, done)
    if ended_s == world.now_s and not world.decided:
        engine.busy_s += world.now_s - engine.busy_since_s
        schedule(state.engines, state.winners, index, math.inf)
        list_deciding(state, index)
        return
    next_s = boundary_s(engine, done + 1)
    engine.run_step_s += engine.run_growth_s * done
    engine.run_start_s = ended_s
    engine.run_iterations = 1
    schedule(state.engines, state.winners, index, next_s)
