"""A lane as rectangles whose area is time: what the timeline draws.

A stretch with one use fills the lane's height. Where uses change faster than the picture can show, and where a serving
cell is busy only part of the time, a stretch is divided by height into the uses' shares of it. No time is lost or moved
by more than one window, so areas keep the shares exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .use import CellUse, GpuUse

Floats = NDArray[np.float64]
Stretch = tuple[float, float, dict[GpuUse, float]]  # start_s, end_s, seconds by use, which sum to end_s - start_s
Rectangle = tuple[float, float, float, float, GpuUse]  # start_s, end_s, bottom and top as shares of the lane, use
_STACK: Final = (  # from the bottom: work, then overhead, then idleness
    GpuUse.SERVING_BUSY,
    GpuUse.SERVING_UNMETERED,
    GpuUse.TRAINING,
    GpuUse.UPDATING,
    GpuUse.PUBLISHING,
    GpuUse.SWITCHING,
    GpuUse.WAITING_FOR_OTHERS,
    GpuUse.WAITING_FOR_SAMPLES,
    GpuUse.SERVING_IDLE,
    GpuUse.FAILED,
)


def stretches(segments: Iterable[tuple[float, float, str]], metered_s: Floats, busy_s: Floats) -> list[Stretch]:
    """Return a lane's segments (start_s, end_s, use), those of serving cut at load reports, split into busy and idle.

    `metered_s` and `busy_s`, both (reports,), are the reports' times and what they said; between two reports busy time
    is spread evenly over the time served.
    """
    serving: list[tuple[float, float]] = []
    others: list[Stretch] = []
    for start_s, end_s, use in segments:
        if use == CellUse.SERVING:
            serving.append((start_s, end_s))
        else:
            others.append((start_s, end_s, {GpuUse(use): end_s - start_s}))
    if not serving:
        return others
    starts_s, ends_s = np.array(serving).T
    return sorted([*others, *_served(starts_s, ends_s, metered_s, busy_s)], key=lambda stretch: stretch[0])


def _served(starts_s: Floats, ends_s: Floats, metered_s: Floats, busy_s: Floats) -> Iterator[Stretch]:
    before_s = np.concatenate(([0.0], np.cumsum(ends_s - starts_s)))

    def serving_s(times_s: Floats) -> Floats:
        """Time served before each of `times_s`."""
        span = np.maximum(np.searchsorted(starts_s, times_s, side="right") - 1, 0)
        inside_s: Floats = np.clip(times_s - starts_s[span], 0.0, (ends_s - starts_s)[span])
        return before_s[span] + inside_s

    edges_s = np.unique(np.concatenate((starts_s, ends_s, metered_s)))
    left_s, right_s = edges_s[:-1], edges_s[1:]
    span = np.searchsorted(starts_s, left_s, side="right") - 1
    inside = (span >= 0) & (right_s <= ends_s[span])
    left_s, right_s = left_s[inside], right_s[inside]
    known_s = np.concatenate(([0.0], serving_s(metered_s)))
    said_s = np.concatenate(([0.0], np.minimum(np.maximum.accumulate(busy_s), known_s[1:])))
    busy = np.diff(np.interp(np.stack((serving_s(left_s), serving_s(right_s))), known_s, said_s), axis=0)[0]
    metered = serving_s(right_s) <= known_s[-1]
    for start_s, end_s, is_metered, part_s in zip(*(x.tolist() for x in (left_s, right_s, metered, busy)), strict=True):
        length_s = end_s - start_s
        working_s = min(length_s, max(0.0, part_s))
        split = {GpuUse.SERVING_BUSY: working_s, GpuUse.SERVING_IDLE: length_s - working_s}
        yield start_s, end_s, split if is_metered else {GpuUse.SERVING_UNMETERED: length_s}


def windows(parts: Iterable[Stretch], window_s: float) -> Iterator[Stretch]:
    """Join neighbours shorter than `window_s` until they are as long as that; longer ones stay as they are."""
    start_s = end_s = 0.0
    sums: dict[GpuUse, float] = {}
    for part_start_s, part_end_s, seconds in parts:
        if part_end_s - part_start_s >= window_s:
            if sums:
                yield start_s, end_s, sums
                sums = {}
            yield part_start_s, part_end_s, seconds
            continue
        if not sums:
            start_s = part_start_s
        end_s = part_end_s
        for use, length_s in seconds.items():
            sums[use] = sums.get(use, 0.0) + length_s
        if end_s - start_s >= window_s:
            yield start_s, end_s, sums
            sums = {}
    if sums:
        yield start_s, end_s, sums


def rectangles(parts: Iterable[Stretch]) -> Iterator[Rectangle]:
    """Yield the rectangles of stretches, stacked from work at the bottom to idleness at the top."""
    for start_s, end_s, seconds in parts:
        whole_s, bottom = sum(seconds.values()), 0.0
        for use in _STACK:
            top = bottom + seconds.get(use, 0.0) / whole_s
            if top > bottom:
                yield start_s, end_s, bottom, top, use
                bottom = top
