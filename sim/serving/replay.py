"""A program checked and indexed for replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gyre.compiler import kernel
from gyre.errors import InputError
from gyre.workload.program import Program

from .spec import EngineSpec
from .state import Int32Array, Int64Array

ARRAYS = (
    ("call_start", np.int64),
    ("thread", np.int32),
    ("input_tokens", np.int64),
    ("output_tokens", np.int64),
    ("prefix_call", np.int32),
    ("prefix_tokens", np.int64),
    ("wait_s", np.float64),
    ("dependencies", np.int32),
    ("successor_start", np.int64),
    ("successor", np.int32),
)


class Graph(NamedTuple):
    """A program's release graph; see `Program`."""

    call_start: Int64Array
    thread: Int32Array
    dependencies: Int32Array
    successor_start: Int64Array
    successor: Int32Array


class Tables(NamedTuple):
    """What the kernels need to know of a program besides its own arrays."""

    join: Int32Array  # C, index among its execution's calls with several dependencies, -1 for other calls
    thread_start: Int64Array  # E + 1, CSR into thread_calls
    thread_calls: Int32Array  # calls of each thread
    joins: Int32Array  # E, calls with several dependencies
    width: Int64Array  # E, bound on the calls released and not finished at any one time


class Replay(NamedTuple):
    """A program ready for replay."""

    arrays: dict[str, npt.NDArray[Any]]  # the program's own, by the names in ARRAYS; shared where possible
    tables: Tables


@kernel
def _fill(graph: Graph, tables: Tables) -> int:
    """Fill tables of zeros; returns a call whose dependencies no successor list accounts for, else -1."""
    join = tables.join
    for execution in range(graph.call_start.shape[0] - 1):
        first, end = graph.call_start[execution], graph.call_start[execution + 1]
        for edge in range(graph.successor_start[first], graph.successor_start[end]):
            join[first + graph.successor[edge]] += 1
        for row in range(first, end):
            if join[row] != graph.dependencies[row]:
                return int(row)
            releases = graph.successor_start[row + 1] - graph.successor_start[row]
            # A call that finishes and releases m others adds m - 1 to those in flight.
            tables.width[execution] += max(releases - 1, 0) + (graph.dependencies[row] == 0)
            tables.thread_calls[tables.thread_start[execution] + graph.thread[row]] += 1
            join[row] = -1
            if graph.dependencies[row] > 1:
                join[row] = tables.joins[execution]
                tables.joins[execution] += 1
    return -1


def _where(program: Program, row: int) -> str:
    execution = int(np.searchsorted(program.call_start, row, side="right")) - 1
    return f"execution {program.execution_ids[execution]}, call {row - int(program.call_start[execution])}"


def _refuse(program: Program, bad: npt.NDArray[np.bool_], fault: str) -> None:
    if bad.any():
        raise InputError(f"{_where(program, int(np.argmax(bad)))}: {fault}")


def _check_ranges(program: Program) -> None:
    calls = np.diff(program.call_start)
    _refuse(program, program.input_tokens < 1, "input_tokens is below 1; give each call at least one input token")
    _refuse(program, program.output_tokens < 1, "output_tokens is below 1; give each call at least one output token")
    _refuse(
        program, ~((program.wait_s >= 0) & np.isfinite(program.wait_s)), "wait_s is not a finite time of at least 0"
    )
    unknown = (program.thread < 0) | (program.thread >= np.repeat(program.thread_count, calls))
    _refuse(program, unknown, "thread is outside its execution's thread_count; compile the trace again")
    _refuse(
        program,
        program.prefix_call >= np.repeat(calls, calls),
        "prefix_call is not a call of its execution; compile the trace again",
    )
    _refuse(program, program.prefix_tokens < 0, "prefix_tokens is negative; give at least 0")


def _check_capacity(program: Program, engines: Sequence[EngineSpec]) -> None:
    room = max(engine.kv_tokens - engine.kv_sequence_tokens for engine in engines)
    needed = program.input_tokens + program.output_tokens
    too_long = needed > room
    if too_long.any():
        row = int(np.argmax(too_long))
        raise InputError(
            f"{_where(program, row)}: {needed[row]} tokens of input and output, but no engine holds more than {room} "
            "in one request; use engines with more KV memory or leave the execution out"
        )


def prepare(program: Program, engines: Sequence[EngineSpec]) -> Replay:
    """Index a program for replay on these engines.

    Raises InputError, naming the execution and the call, if a value is out of range, if the release graph is
    inconsistent, or if a request fits no engine.
    """
    arrays = {name: np.require(getattr(program, name), kind, ["C", "W", "A"]) for name, kind in ARRAYS}
    executions, calls = program.executions, program.calls
    thread_start = np.zeros(executions + 1, np.int64)
    np.cumsum(program.thread_count, out=thread_start[1:])
    _check_ranges(program)
    _check_capacity(program, engines)
    tables = Tables(
        join=np.zeros(calls, np.int32),
        thread_start=thread_start,
        thread_calls=np.zeros(int(thread_start[-1]), np.int32),
        joins=np.zeros(executions, np.int32),
        width=np.zeros(executions, np.int64),
    )
    bad = _fill(Graph(*(arrays[name] for name in Graph._fields)), tables)
    if bad >= 0:
        fault = "dependencies is not the number of calls that have it as successor; compile the trace again"
        raise InputError(f"{_where(program, bad)}: {fault}")
    return Replay(arrays, tables)
