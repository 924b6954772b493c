"""Seconds of a decode iteration and of a prefill, from what engines did and when tokens came.

Decode of m tokens, the first left out, takes (m - 1) iterations of a + b n + c S seconds, and the prefills of others
that came in between; a first token takes its prefill, p0 + p1 N + p2 N (F + N/2), and on average half of the iteration
in which its request arrived. All of it is linear in a, b, c, p0, p1, p2, given how many sequences (n) and tokens of
context (S) an engine had, which the records say. Only how to average these over a reply's iterations depends on a, b
and c: it is done again with the figures found, until they stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gyre.arrays import BoolArray, FloatArray

from .engine_load import EngineLoad, StepTime
from .robust import Estimate, fit

_ROUNDS: Final = 6
_WAITED: Final = 3.0  # by which the error of a first token grows that waited for an iteration's end
_A, _B, _C = range(3)  # columns; p0, p1, p2 come after them
_KINDS: Final = (0, 0, 0, 1, 1, 1)  # decode and prefill


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """Seconds, the formulas' coefficients; and the share by which measured and fitted times differ."""

    a: Estimate
    b: Estimate
    c: Estimate
    p0: Estimate
    p1: Estimate
    p2: Estimate
    replies: int
    first_tokens: int
    error: float  # median of |fitted - measured| / measured over decode times


def fit_engines(loads: Sequence[EngineLoad], pauses: Sequence[tuple[float, float]]) -> EngineTimes | None:
    """Fit all engines together; stretches within which weights were published (`pauses`) are left out.

    None where no reply can be measured.
    """
    decoded = [_decode_parts(load, pauses) for load in loads]
    replies = sum(int(np.count_nonzero(part[0])) for part in decoded)
    if not replies:
        return None
    firsts = _stacked([_first_rows(load, pauses) for load in loads])
    step: StepTime = (1.0, 0.0, 0.0)
    for _ in range(_ROUNDS):
        replied = _stacked([_decode_rows(load, part, step) for load, part in zip(loads, decoded, strict=True)])
        rows, target = (np.concatenate(parts) for parts in zip(replied, firsts, strict=True))
        estimates = fit(rows, target, _doubt(replied[1], firsts[0]), _KINDS)
        last, step = step, (max(estimates[_A].value, 1e-9), estimates[_B].value, estimates[_C].value)
        if np.allclose(step, last, rtol=1e-6, atol=0.0):
            break
    fitted = replied[0] @ [estimate.value for estimate in estimates]
    error = float(np.median(np.abs(fitted - replied[1]) / np.maximum(replied[1], 1e-9)))
    a, b, c, p0, p1, p2 = estimates
    return EngineTimes(a, b, c, p0, p1, p2, replies, len(firsts[1]), error)


def _stacked(parts: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([target for _, target in parts])


def _doubt(replied: FloatArray, firsts: FloatArray) -> FloatArray:
    """A first token's wait for an iteration's end is known to half of it only."""
    return np.concatenate((np.ones(len(replied)), np.where(firsts[:, _A] > 0, _WAITED, 1.0)))


def _clear(begins: FloatArray, ends: FloatArray, pauses: Sequence[tuple[float, float]]) -> BoolArray:
    """Whether no pause falls within each span."""
    clear = np.ones(len(begins), np.bool_)
    for begin_s, end_s in pauses:
        clear &= (ends < begin_s) | (begins > end_s)
    return clear


def _decode_parts(load: EngineLoad, pauses: Sequence[tuple[float, float]]) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Which stretches (D) measure decode, their seconds (D,), and what p0, p1, p2 count within each, (D, 3)."""
    begins = np.array([stretch.first_s for stretch in load.decoding])
    ends = np.array([stretch.ended_s for stretch in load.decoding])
    usable = np.array([one.measures and one.output_tokens > 1 for one in load.decoding], np.bool_)
    usable &= _clear(begins, ends, pauses)
    columns = [(1.0, one.new_tokens, one.attended, float(not one.known)) for one in load.prefills]
    sums = np.concatenate((np.zeros((1, 4)), np.cumsum(np.array(columns).reshape(-1, 4), axis=0)))
    first, after = load.prefills_within()
    within = sums[after] - sums[first]
    return usable & (within[:, 3] == 0), ends - begins, within[:, :3]


def _decode_rows(
    load: EngineLoad, part: tuple[BoolArray, FloatArray, FloatArray], step: StepTime
) -> tuple[FloatArray, FloatArray]:
    usable, seconds, prefills = part
    if not len(usable):
        return np.zeros((0, 6)), np.zeros(0)
    sequences, contexts = load.averages(step)
    iterations = np.array([stretch.output_tokens - 1.0 for stretch in load.decoding])
    rows = np.column_stack((iterations, iterations * sequences, iterations * contexts, prefills))
    return rows[usable], seconds[usable]


def _first_rows(load: EngineLoad, pauses: Sequence[tuple[float, float]]) -> tuple[FloatArray, FloatArray]:
    rows, target = [np.zeros((0, 6))], [np.zeros(0)]
    for prefill in load.prefills:
        if not prefill.known or any(
            prefill.ended_s >= begin_s and prefill.began_s <= end_s for begin_s, end_s in pauses
        ):
            continue
        sequences, contexts = load.at(prefill.began_s) if prefill.waited else (0.0, 0.0)
        half = 0.5 if prefill.waited else 0.0
        row = (half, half * sequences, half * contexts, 1.0, prefill.new_tokens, prefill.attended)
        rows.append(np.array([row]))
        target.append(np.array([prefill.first_s - prefill.began_s]))
    return np.concatenate(rows), np.concatenate(target)
