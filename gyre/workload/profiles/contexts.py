"""Contexts of threads that grow call by call and are compacted at a threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...arrays import Int64Array


@dataclass(frozen=True, slots=True)
class Contexts:
    """T turns of threads, in thread order."""

    input_tokens: Int64Array  # T
    compacted: npt.NDArray[np.bool_]  # T, true where a summary comes before the turn


def grow(
    first_turn: Int64Array,
    input_tokens: Int64Array,
    growth_tokens: Int64Array,
    output_tokens: Int64Array,
    *,
    threshold_tokens: int | None,
    after_tokens: Int64Array,
) -> Contexts:
    """Inputs of the turns of H threads with T turns in all.

    A turn's input is the one before it plus that one's output plus the turn's growth. Where that would pass
    `threshold_tokens`, the context is compacted to the turn's `after_tokens` instead.

    Args:
        first_turn: H, rising: each thread's first turn; its turns end where the next thread's begin.
        input_tokens: H, inputs of the first turns; below the threshold.
        growth_tokens: T; the values at first turns are not used.
        output_tokens: T.
        threshold_tokens: None: never compact.
        after_tokens: T; read at compacted turns only; below the threshold.
    """
    turns = len(growth_tokens)
    step = growth_tokens + np.concatenate([[0], output_tokens[:-1]])
    step[first_turn] = 0
    grown = np.cumsum(step)
    segment_start, segment_input = [first_turn], [input_tokens]
    start, context, end = first_turn, input_tokens, np.append(first_turn[1:], turns)
    # Each round finds the next compaction of every thread that has one: as many rounds as the most that a thread has.
    while threshold_tokens is not None and len(start):
        crossing = np.searchsorted(grown, grown[start] + (threshold_tokens - context), side="right")
        inside = crossing < end
        start, end = crossing[inside], end[inside]
        context = after_tokens[start]
        segment_start.append(start)
        segment_input.append(context)
    starts, inputs = np.concatenate(segment_start), np.concatenate(segment_input)
    order = np.argsort(starts)
    starts, inputs = starts[order], inputs[order]
    lengths = np.diff(np.append(starts, turns))
    compacted = np.zeros(turns, np.bool_)
    compacted[starts] = True
    compacted[first_turn] = False
    return Contexts(input_tokens=grown + np.repeat(inputs - grown[starts], lengths), compacted=compacted)
