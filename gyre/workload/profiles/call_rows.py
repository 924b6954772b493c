"""Rows of calls that a set of turns becomes: each turn's call, with a summary before it or a retry after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...arrays import FloatArray, Int8Array, Int64Array
from ..schema import Relation
from .draws import Draws
from .profile import Nominal
from .turns import Turns

BEFORE: Final = 0  # a summary
TURN: Final = 1  # the turn's call, or its first attempt
AGAIN: Final = 2  # the turn's call, sent again
_RELATION: Final = {relation: code for code, relation in enumerate(Relation)}


@dataclass(frozen=True, slots=True)
class CallRows:
    """R rows in order of (execution, thread, time); a row's parent call is the row before it in its thread."""

    turn: Int64Array  # R
    part: Int64Array  # R: BEFORE, TURN or AGAIN
    thread: Int64Array  # R, into the H threads of the draws
    opening: npt.NDArray[np.bool_]  # R: first row of its thread
    joining: npt.NDArray[np.bool_]  # R: waits for sub-agents
    thread_row: Int64Array  # H: first row of each thread
    spawned_by: Int64Array  # H: row whose end releases the thread, the last of its turn; -1 for main threads
    input_tokens: Int64Array  # R
    output_tokens: Int64Array  # R
    prefix_tokens: Int64Array  # R
    dropped_tokens: Int64Array  # R
    relation: Int8Array  # R, index into list(Relation)
    wait_s: FloatArray  # R


def rows_of(draws: Draws, turns: Turns) -> CallRows:
    """All rows."""
    per_turn = 1 + turns.compacted.astype(np.int64) + turns.retried
    turn = np.repeat(np.arange(len(per_turn)), per_turn)
    first_row = np.cumsum(per_turn) - per_turn
    compacted = turns.compacted[turn]
    part = np.arange(len(turn)) - first_row[turn] + np.where(compacted, BEFORE, TURN)
    thread_row = first_row[turns.first]
    opening = _marked(thread_row, len(turn))
    spawned_by = _spawned_by(draws, turns, first_row + per_turn - 1)
    joining = _marked(spawned_by[spawned_by >= 0] + 1, len(turn))
    unwaited = (part == AGAIN) | ((part == TURN) & compacted) | joining
    return CallRows(
        turn=turn,
        part=part,
        thread=turns.thread[turn],
        opening=opening,
        joining=joining,
        thread_row=thread_row,
        spawned_by=spawned_by,
        wait_s=np.where(unwaited, 0.0, turns.wait_s[turn]),
        relation=_relation(part, compacted, opening),
        **_tokens(turns, turn, part, opening),
    )


def nominal_starts(draws: Draws, rows: CallRows, speed: Nominal) -> FloatArray:
    """R seconds from the end of the execution's set-up to the start of each row, at the nominal speed."""
    model_s = (
        rows.output_tokens / speed.decode_tokens_per_s
        + (rows.input_tokens - rows.prefix_tokens) / speed.prefill_tokens_per_s
    )
    length = np.add.reduceat(rows.wait_s + model_s, rows.thread_row)  # H: the whole time of a sub-agent
    spawned = rows.spawned_by >= 0
    wait = rows.wait_s.copy()
    joined = np.zeros(len(wait))
    np.maximum.at(joined, rows.spawned_by[spawned] + 1, length[spawned])
    wait += joined
    end = np.cumsum(wait + model_s)
    before_thread = end[rows.thread_row] - wait[rows.thread_row] - model_s[rows.thread_row]
    end -= before_thread[rows.thread]  # since the thread's release
    release = np.where(spawned, end[np.maximum(rows.spawned_by, 0)], 0.0)
    return np.asarray(end - model_s + release[rows.thread], np.float64)


def _tokens(turns: Turns, turn: Int64Array, part: Int64Array, opening: npt.NDArray[np.bool_]) -> dict[str, Int64Array]:
    """Input, output, prefix and dropped tokens of every row, by field name."""
    previous = np.arange(len(turn)) - 1
    summary, again = part == BEFORE, part == AGAIN
    compacted = (part == TURN) & turns.compacted[turn]
    failed = (part == TURN) & turns.retried[turn]
    output = np.where(summary, turns.summary_tokens[turn], turns.output_tokens[turn])
    output = np.where(failed, np.maximum(1, (output * turns.spent_share[turn]).astype(np.int64)), output)
    full_context = turns.input_tokens[turn[previous]] + turns.output_tokens[turn[previous]]
    input_tokens = np.where(summary, full_context, turns.input_tokens[turn])
    parent_context = input_tokens[previous] + output[previous]
    # What a compacted context shares with the old one is its head: the thread's first input, as far as both hold it.
    head = np.minimum(turns.input_tokens[turns.first][turns.thread[turn]], np.minimum(input_tokens, parent_context))
    prefix = np.where(compacted, head, np.where(again, input_tokens, parent_context))
    return {
        "input_tokens": input_tokens,
        "output_tokens": output,
        "prefix_tokens": np.where(opening, 0, prefix),
        "dropped_tokens": np.where(opening, 0, parent_context - prefix),
    }


def _relation(part: Int64Array, compacted: npt.NDArray[np.bool_], opening: npt.NDArray[np.bool_]) -> Int8Array:
    relation = np.full(len(part), _RELATION[Relation.APPEND], np.int8)
    relation[part == AGAIN] = _RELATION[Relation.RETRY]
    relation[(part == TURN) & compacted] = _RELATION[Relation.COMPACTION]
    relation[opening] = _RELATION[Relation.ROOT]
    return relation


def _spawned_by(draws: Draws, turns: Turns, last_row: Int64Array) -> Int64Array:
    main = np.flatnonzero(draws.thread_number == 0)
    turn = turns.first[main][draws.thread_execution] + np.maximum(draws.spawn_turn, 0)
    return np.where(draws.spawn_turn < 0, -1, last_row[turn])


def _marked(at: Int64Array, size: int) -> npt.NDArray[np.bool_]:
    marks = np.zeros(size, np.bool_)
    marks[at] = True
    return marks
