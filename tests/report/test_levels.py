"""Thinning of levels keeps what a picture must not lose."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gyre.report.level_log import LevelLog, thinned_rows

SAMPLES = st.lists(st.tuples(st.floats(0.0, 1e5), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=200)


@given(samples=SAMPLES, buckets=st.integers(1, 20))
def test_each_bucket_keeps_its_ends_and_extremes(samples: list[tuple[float, int, int]], buckets: int) -> None:
    time_s = np.sort(np.array([time for time, _, _ in samples]))
    levels = np.array([(a, b) for _, a, b in samples], dtype=np.int64)
    rows = thinned_rows(time_s, levels, buckets)
    assert (np.diff(rows) > 0).all()
    assert len(rows) <= min(len(time_s), buckets * 6)
    assert rows[0] == 0
    assert rows[-1] == len(time_s) - 1
    span_s = max(time_s[-1] - time_s[0], np.finfo(float).tiny)
    bucket = np.minimum(((time_s - time_s[0]) / span_s * buckets).astype(int), buckets - 1)
    for number in np.unique(bucket):
        whole, kept = levels[bucket == number], levels[rows][bucket[rows] == number]
        assert (kept.min(axis=0) == whole.min(axis=0)).all()
        assert (kept.max(axis=0) == whole.max(axis=0)).all()


def test_of_several_notes_at_one_time_the_last_counts() -> None:
    log = LevelLog()
    for time_s, level in ((0.0, 1), (5.0, 7), (5.0, 3), (9.0, 4), (11.0, 8)):
        log.water_level = level
        log.note(time_s)
    frame = log.frame(10.0)
    assert frame.select("time_s", "water_level").rows() == [(0.0, 1), (5.0, 3), (9.0, 4), (10.0, 4)]
