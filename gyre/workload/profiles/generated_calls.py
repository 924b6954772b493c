"""Calls of generated executions, in order of their nominal start."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from ...arrays import FloatArray, Int8Array, Int64Array
from ...role import Role
from ..schema import WaitKind
from .call_rows import BEFORE, CallRows, nominal_starts, rows_of
from .draws import Draws
from .profile import Profile
from .turns import Turns

_ROLE: Final = {role: code for code, role in enumerate(Role)}
_WAIT: Final = {kind: code for code, kind in enumerate(WaitKind)}


@dataclass(frozen=True, slots=True)
class GeneratedCalls:
    """C calls ordered by (execution, index); references to calls are indices within the execution, -1 where none."""

    execution: Int64Array
    index: Int64Array
    thread: Int64Array
    role: Int8Array  # index into list(Role); relation and wait_kind likewise
    relation: Int8Array
    parent_call: Int64Array
    prefix_tokens: Int64Array
    dropped_tokens: Int64Array
    input_tokens: Int64Array
    output_tokens: Int64Array
    after_call: Int64Array
    wait_s: FloatArray
    wait_kind: Int8Array

    def keep(self, executions: npt.NDArray[np.bool_]) -> GeneratedCalls:
        """The calls of those executions only; executions keep their numbers."""
        rows = executions[self.execution]
        return self if rows.all() else self.at(rows)

    def at(self, rows: npt.NDArray[np.bool_] | Int64Array) -> GeneratedCalls:
        """The calls in the given rows."""
        return GeneratedCalls(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def calls_of(draws: Draws, turns: Turns, profile: Profile) -> GeneratedCalls:
    """All calls; call indices follow the start times that the profile's nominal speeds give."""
    rows = rows_of(draws, turns)
    execution = draws.thread_execution[rows.thread]
    order = np.lexsort((rows.thread, nominal_starts(draws, rows, profile.nominal), execution))
    first_of_execution = np.searchsorted(execution, np.arange(execution[-1] + 1))
    index = np.empty_like(order)
    index[order] = np.arange(len(order)) - first_of_execution[execution[order]]
    previous = np.arange(len(order)) - 1
    after = np.where(rows.opening, rows.spawned_by[rows.thread], previous)
    return GeneratedCalls(
        execution=execution,
        index=index,
        thread=draws.thread_number[rows.thread],
        role=_role(draws, rows),
        relation=rows.relation,
        parent_call=np.where(rows.opening, -1, index[previous]),
        prefix_tokens=rows.prefix_tokens,
        dropped_tokens=rows.dropped_tokens,
        input_tokens=rows.input_tokens,
        output_tokens=rows.output_tokens,
        after_call=np.where(after < 0, -1, index[after]),
        wait_s=rows.wait_s,
        wait_kind=_wait_kind(rows),
    ).at(order)


def _role(draws: Draws, rows: CallRows) -> Int8Array:
    main = draws.thread_number[rows.thread] == 0
    summary = np.where(main, _ROLE[Role.MAIN_SUMMARY], _ROLE[Role.SUB_AGENT_SUMMARY])
    turn = np.where(main, _ROLE[Role.MAIN], _ROLE[Role.SUB_AGENT])
    return np.where(rows.part == BEFORE, summary, turn).astype(np.int8)


def _wait_kind(rows: CallRows) -> Int8Array:
    later = np.where(rows.joining, _WAIT[WaitKind.SUBAGENT_JOIN], _WAIT[WaitKind.TOOL])
    return np.where(rows.opening, _WAIT[WaitKind.START], later).astype(np.int8)
