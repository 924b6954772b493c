"""When calls and executions end if every call takes a given time: the critical path through the release graph."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray, Int32Array, Int64Array
from ..compiler import kernel
from .program import Program


def call_ends(program: Program, call_s: FloatArray) -> FloatArray:
    """End of each call since its execution's dispatch if call c takes `call_s[c]` seconds; (C,) float64.

    Raises ValueError where a release graph has a cycle or its dependency counts do not fit its edges.
    """
    graph = _Graph(
        program.call_start,
        program.setup_s,
        program.wait_s,
        program.dependencies,
        program.successor_start,
        program.successor,
    )
    ends_s = np.zeros(program.calls)
    stuck = _longest_paths(graph, call_s, ends_s)
    if stuck >= 0:
        raise ValueError(f"execution {program.execution_ids[stuck]!r}: some calls are never released by the others")
    return ends_s


def execution_ends(program: Program, ends_s: FloatArray, timeout_s: float = math.inf) -> FloatArray:
    """End of the last of each execution's calls, at most `timeout_s`; the end of set-up where there are none; (E,)."""
    ends = program.setup_s.astype(np.float64)
    held = np.flatnonzero(np.diff(program.call_start) > 0)
    if held.size:
        ends[held] = np.maximum.reduceat(ends_s, program.call_start[held])
    return np.minimum(ends, timeout_s)


class _Graph(NamedTuple):
    """The release graph of a program; see `Program`."""

    call_start: Int64Array
    setup_s: FloatArray
    wait_s: FloatArray
    dependencies: Int32Array
    successor_start: Int64Array
    successor: Int32Array


@kernel
def _longest_paths(graph: _Graph, call_s: FloatArray, ends_s: FloatArray) -> int:
    """Fill `ends_s` in topological order (Kahn 1962); returns the index of an execution that is stuck, or -1."""
    released_s = np.zeros(call_s.size)
    missing = graph.dependencies.copy()
    order = np.empty(call_s.size, np.int64)
    for execution in range(graph.call_start.size - 1):
        first, last = graph.call_start[execution], graph.call_start[execution + 1]
        queued = first
        for call in range(first, last):
            released_s[call] = graph.setup_s[execution]
            if missing[call] == 0:
                order[queued] = call
                queued += 1
        done = first
        while done < queued:
            call = order[done]
            done += 1
            ends_s[call] = released_s[call] + graph.wait_s[call] + call_s[call]
            for edge in range(graph.successor_start[call], graph.successor_start[call + 1]):
                follower = first + graph.successor[edge]
                released_s[follower] = max(released_s[follower], ends_s[call])
                missing[follower] -= 1
                if missing[follower] == 0:
                    order[queued] = follower
                    queued += 1
        if done != last:
            return execution
    return -1
