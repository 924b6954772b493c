"""Rectangles of a lane keep the shares of time, however much is merged."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.report.lane_rectangles import rectangles, stretches, windows
from gyre.report.use import CellUse, GpuUse

EMPTY = np.zeros(0)
LENGTHS = st.lists(st.tuples(st.floats(0.01, 50.0), st.sampled_from(list(CellUse))), min_size=1, max_size=60)


def lane(lengths: list[tuple[float, CellUse]]) -> list[tuple[float, float, str]]:
    edges = [0.0, *itertools.accumulate(length for length, _ in lengths)]
    return [(start, end, use.value) for (start, end), (_, use) in zip(itertools.pairwise(edges), lengths, strict=True)]


def test_serving_is_split_by_the_meters() -> None:
    # Serves 0-10 and 20-30. Busy 4 s of the first 8, then 6 s of the 7 served until 25; nothing is known of the rest.
    segments = [(0.0, 10.0, "serving"), (10.0, 20.0, "training"), (20.0, 30.0, "serving")]
    found = stretches(segments, np.array([8.0, 25.0]), np.array([4.0, 10.0]))
    expected = [
        (0.0, 8.0, {GpuUse.SERVING_BUSY: 4.0, GpuUse.SERVING_IDLE: 4.0}),
        (8.0, 10.0, {GpuUse.SERVING_BUSY: 12 / 7, GpuUse.SERVING_IDLE: 2 / 7}),
        (10.0, 20.0, {GpuUse.TRAINING: 10.0}),
        (20.0, 25.0, {GpuUse.SERVING_BUSY: 30 / 7, GpuUse.SERVING_IDLE: 5 / 7}),
        (25.0, 30.0, {GpuUse.SERVING_UNMETERED: 5.0}),
    ]
    assert [part[:2] for part in found] == [part[:2] for part in expected]
    for part, wanted in zip(found, expected, strict=True):
        assert part[2] == pytest.approx(wanted[2])


@given(lengths=LENGTHS, window_s=st.floats(0.001, 200.0), meters=st.lists(st.floats(0.0, 1500.0), max_size=20))
def test_area_by_use_is_time_by_use(lengths: list[tuple[float, CellUse]], window_s: float, meters: list[float]) -> None:
    segments = lane(lengths)
    metered_s = np.array(sorted(meters))
    parts = stretches(segments, metered_s, metered_s / 2)
    drawn = list(rectangles(windows(parts, window_s)))
    areas = dict.fromkeys(GpuUse, 0.0)
    for start_s, end_s, bottom, top, use in drawn:
        assert 0.0 <= bottom < top <= 1.0 + 1e-9
        areas[use] += (end_s - start_s) * (top - bottom)
    serving = {GpuUse.SERVING_BUSY, GpuUse.SERVING_IDLE, GpuUse.SERVING_UNMETERED}
    for cell_use in CellUse:
        wanted = sum(end - start for start, end, name in segments if name == cell_use)
        parts_of = serving if cell_use is CellUse.SERVING else {GpuUse(cell_use.value)}
        got = sum(areas[part] for part in parts_of)
        assert got == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    starts = {rectangle[0] for rectangle in drawn}
    ends = {rectangle[1] for rectangle in drawn}
    assert starts - ends == {0.0}, "rectangles leave no gap"


@given(lengths=LENGTHS, window_s=st.floats(0.001, 200.0))
def test_merging_bounds_the_number_of_stretches(lengths: list[tuple[float, CellUse]], window_s: float) -> None:
    segments = lane(lengths)
    span_s = segments[-1][1]
    long = sum(end - start >= window_s for start, end, _ in segments)
    assert len(list(windows(stretches(segments, EMPTY, EMPTY), window_s))) <= span_s / window_s + 2 * long + 1
