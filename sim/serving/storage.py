"""Making and enlarging the model's state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from .replay import Replay
from .spec import EngineSpec
from .state import (
    ENGINE,
    EXECUTION,
    FINISH,
    FREE,
    QUEUE,
    REQUEST,
    THREAD,
    TIMER,
    WORLD,
    Int32Array,
    Records,
    State,
    grown,
)


def _engines(specs: Sequence[EngineSpec]) -> Records:
    rows = 1 << (len(specs) - 1).bit_length()
    engines = np.zeros(rows, ENGINE)
    engines["next_s"] = math.inf
    engines["oldest"] = engines["newest"] = -1
    for field in fields(EngineSpec):
        engines[field.name][: len(specs)] = [getattr(spec, field.name) for spec in specs]
    return engines


def _winners(leaves: int) -> Int32Array:
    winners = np.zeros(2 * leaves, np.int32)
    winners[leaves:] = np.arange(leaves)
    for node in range(leaves - 1, 0, -1):  # every node holds an engine of its own subtree, before any match too
        winners[node] = winners[2 * node]
    return winners


def allocate(replay: Replay, specs: Sequence[EngineSpec], rebalance: float) -> State:
    """State at time 0: engines closed, no executions, and no room for any yet."""
    world = np.zeros(1, WORLD)
    world["rebalance"] = rebalance
    world["engines"] = len(specs)
    thread_count = np.diff(replay.tables.thread_start)
    world["thread_stride"] = thread_count.max(initial=0)
    world["join_stride"] = replay.tables.joins.max(initial=0)
    world["free_request"] = -1
    engines = _engines(specs)
    queues = np.zeros(2 * len(specs) + 1, QUEUE)
    queues["head"] = queues["tail"] = -1
    return State(
        **replay.arrays,
        join=replay.tables.join,
        thread_start=replay.tables.thread_start,
        thread_calls=replay.tables.thread_calls,
        world=world,
        engines=engines,
        winners=_winners(len(engines)),
        queues=queues,
        batches=np.zeros((len(specs), 0), FINISH),
        threads=np.zeros(0, THREAD),
        requests=np.zeros(0, REQUEST),
        executions=np.zeros(0, EXECUTION),
        joins=np.zeros(0, np.int32),
        timers=np.zeros(0, TIMER),
        deciding=np.zeros(len(specs), np.int32),
        scratch=np.zeros((2, 0), np.int64),
        ended=np.zeros(0, np.int32),
    )


def with_slots(state: State, slots: int) -> State:
    """The state with room for `slots` executions."""
    old, world = len(state.threads), state.world
    threads = grown(state.threads, slots * int(world["thread_stride"][0]))
    threads["home"][old:] = -1
    return state._replace(
        threads=threads,
        executions=grown(state.executions, slots),
        joins=grown(state.joins, slots * int(world["join_stride"][0])),
        ended=grown(state.ended, slots),
        timers=grown(state.timers, 2 * slots + len(state.requests)),
    )


def with_requests(state: State, rows: int) -> State:
    """The state with room for `rows` released and unfinished calls."""
    old, world = len(state.requests), state.world
    requests = grown(state.requests, rows)
    requests["stage"][old:] = FREE
    requests["next"][old:] = np.arange(old + 1, rows + 1)
    requests["next"][-1] = world["free_request"][0]
    world["free_request"] = old
    widest = int(state.engines["max_running"].max())
    batches = np.zeros((len(state.batches), min(rows, widest)), FINISH)
    batches[:, : state.batches.shape[1]] = state.batches
    return state._replace(
        requests=requests,
        batches=batches,
        scratch=np.zeros((2, rows), np.int64),
        timers=grown(state.timers, 2 * len(state.executions) + rows),
    )
