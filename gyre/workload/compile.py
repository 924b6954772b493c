"""Turns a trace into the flat arrays that a simulator replays."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from ..arrays import Int32Array, Int64Array, row_starts
from ..errors import InputError
from ..outcome import Outcome
from ..role import Role
from .paths import ContextTrees, selected_paths
from .program import Program
from .schema import Relation
from .threads import join_calls, thread_table
from .trace import Trace

DEFAULT_MAX_PATHS = 5

_Number = TypeVar("_Number", np.int8, np.int32, np.int64, np.float64)


def compile_program(trace: Trace, *, max_paths: int = DEFAULT_MAX_PATHS, seed: int = 0) -> Program:
    """Compile a valid trace (see `validate.read_repaired`) into a `Program`.

    A call without output gets one output token: a served request costs at least one step. `max_paths` bounds the paths
    of an execution that are selected for training (J_max), which are drawn with `seed`; see `paths.selected_paths`.

    Raises:
        InputError: the trace has no executions, `max_paths` < 1, or the release graph does not reach every call because
            an edge does not lead to a later call.
    """
    if max_paths < 1:
        raise InputError(f"max_paths is {max_paths}; it must be 1 or more")
    if trace.executions.is_empty():
        raise InputError("the trace holds no executions; check the filter or import a source that has some")
    executions = trace.executions
    calls = trace.calls.with_columns(execution=pl.col("execution_id").rle_id())
    call_start = _call_start(executions, trace.calls)
    first_row = np.repeat(call_start[:-1], np.diff(call_start))
    dependencies, successor_start, successor = _release_graph(calls, first_row)
    inputs = _array(calls["input_tokens"], np.int64)
    outputs = np.maximum(_array(calls["output_tokens"], np.int64), 1)
    prefix_call = _array(calls["parent_call"].fill_null(-1), np.int32)
    prefix_tokens = _array(calls["prefix_tokens"], np.int64)
    role, relation = _codes(calls["role"], Role), _codes(calls["relation"], Relation)
    trees = ContextTrees(call_start, role, relation, prefix_call, prefix_tokens, inputs, outputs)
    path_start, leaf = selected_paths(trees, executions["execution_id"].to_list(), max_paths, seed=seed)
    group_ids, group = _groups(executions["group_id"])
    return Program(
        execution_ids=tuple(executions["execution_id"].to_list()),
        group=group,
        group_ids=group_ids,
        call_start=call_start,
        thread_count=_thread_count(trace),
        setup_s=_array(executions["setup_s"], np.float64),
        scoring_s=_array(executions["scoring_s"], np.float64),
        outcome=_codes(executions["outcome"], Outcome),
        reward=_array(executions["reward"].fill_null(np.nan), np.float64),
        thread=_array(calls["thread"], np.int32),
        role=role,
        input_tokens=inputs,
        output_tokens=outputs,
        prefix_call=prefix_call,
        prefix_tokens=prefix_tokens,
        wait_s=_array(calls["wait_s"], np.float64),
        dependencies=dependencies,
        successor_start=successor_start,
        successor=successor,
        path_start=path_start,
        path_tokens=(inputs + outputs)[leaf],
    )


def _call_start(executions: pl.DataFrame, calls: pl.DataFrame) -> Int64Array:
    counted = calls.group_by("execution_id").agg(counted=pl.len())
    counts = executions.join(counted, on="execution_id", how="left", maintain_order="left")["counted"].fill_null(0)
    offsets = row_starts(counts.to_numpy())
    if offsets[-1] != len(calls):
        raise InputError(
            "calls name executions that are not in the executions table; run `gyre trace import` on the source"
        )
    return offsets


def _release_graph(calls: pl.DataFrame, first_row: Int64Array) -> tuple[Int32Array, Int64Array, Int32Array]:
    """In-degree of each call and the CSR of what each call releases, from `after_call` and the joins."""
    size = len(calls)
    own = _array(calls["call_index"], np.int64)
    after = _array(calls["after_call"].fill_null(-1), np.int64)
    released = np.flatnonzero(after >= 0)
    ends, joins = _join_edges(calls)
    before = np.concatenate((first_row[released] + after[released], ends))
    then = np.concatenate((released, joins))
    _refuse_backward(calls, before, then)
    edges = np.sort(before * size + then)  # sorting is several times faster here than np.unique
    edges = edges[np.diff(edges, prepend=-1) != 0]  # a join may also name a thread's end in `after_call`: one edge
    before, then = edges // max(size, 1), edges % max(size, 1)
    successor_start = row_starts(np.bincount(before, minlength=size))
    dependencies = np.bincount(then, minlength=size).astype(np.int32)
    return dependencies, successor_start, own[then].astype(np.int32)


def _join_edges(calls: pl.DataFrame) -> tuple[Int64Array, Int64Array]:
    """Rows of the calls that end joined threads, and of the joining calls.

    An end of a thread is a call that no other call of the thread comes after.
    """
    if join_calls(calls).is_empty():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = calls.select("execution", "thread", "call_index", "after_call", row=pl.int_range(pl.len(), dtype=pl.Int64))
    joined = thread_table(calls).filter(pl.col("join_call").is_not_null()).select("execution", "thread", "join_call")
    members = rows.join(joined, on=["execution", "thread"], how="inner")
    followed = members.select("execution", "thread", call_index="after_call").drop_nulls().unique()
    ends = members.join(followed, on=["execution", "thread", "call_index"], how="anti")
    joins = rows.select("execution", join_call="call_index", join_row="row")
    edges = ends.join(joins, on=["execution", "join_call"], how="inner")
    return _array(edges["row"], np.int64), _array(edges["join_row"], np.int64)


def _refuse_backward(calls: pl.DataFrame, before: Int64Array, then: Int64Array) -> None:
    """Every edge must lead to a later row: then each call is reached, by induction over the rows."""
    backward = np.flatnonzero(before >= then)
    if len(backward):
        row = int(then[backward[0]])
        execution_id, call_index = calls.select("execution_id", "call_index").row(row)
        raise InputError(
            f"execution {execution_id}: call {call_index} waits for a call that does not come before it "
            f"({len(backward)} such edges); the trace needs `validate.repair` or a new import"
        )


def _thread_count(trace: Trace) -> Int32Array:
    threads = trace.calls.group_by("execution_id").agg(threads=pl.col("thread").max() + 1)
    counts = trace.executions.join(threads, on="execution_id", how="left", maintain_order="left")["threads"]
    return _array(counts.fill_null(0), np.int32)


def _array(column: pl.Series, dtype: type[_Number]) -> npt.NDArray[_Number]:
    """A contiguous, writable copy: compiled kernels are specialised on read-only arrays apart."""
    return np.array(column.to_numpy(), dtype=dtype)


def _groups(group_id: pl.Series) -> tuple[tuple[str, ...], Int32Array]:
    names = group_id.unique(maintain_order=True)
    return tuple(names.to_list()), _array(group_id.cast(pl.Enum(names)).to_physical(), np.int32)


def _codes(column: pl.Series, kind: type[StrEnum]) -> npt.NDArray[np.int8]:
    """Indices into `list(kind)`; the schema's Enum has its categories in that order."""
    return _array(column.cast(pl.Enum([member.value for member in kind])).to_physical(), np.int8)
