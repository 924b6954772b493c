"""Water level, running executions, serving capacity and ready groups over time."""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

LEVELS_SCHEMA: Final[dict[str, pl.DataType]] = {
    "time_s": pl.Float64(),
    "water_level": pl.Int64(),  # dispatched - finished executions
    "running": pl.Int64(),  # started - finished executions
    "capacity": pl.Int64(),  # of the cells that serve now
    "ready_groups": pl.Int64(),
}
_BUCKETS: Final = 1000


class LevelLog:
    """Four levels; `note` keeps what they are now. Of several notes at one time the last counts."""

    def __init__(self) -> None:
        self.water_level = 0
        self.running = 0
        self.capacity = 0
        self.ready_groups = 0
        self._time_s = array("d")
        self._levels = array("q")  # four a time

    def note(self, now_s: float) -> None:
        """Keep the levels as they are from `now_s` on."""
        levels = self._levels
        if self._time_s and self._time_s[-1] == now_s:
            del levels[-4:]
        else:
            self._time_s.append(now_s)
        levels.extend((self.water_level, self.running, self.capacity, self.ready_groups))

    def frame(self, end_s: float, buckets: int = _BUCKETS) -> pl.DataFrame:
        """Return levels (`LEVELS_SCHEMA`), each valid until the next row's time, the last row at `end_s`.

        A long record is thinned: the time is cut into `buckets` equal parts, and of each the first row, the last row
        and every level's lowest and highest row stay, so that no extreme is lost.
        """
        time_s = np.array(self._time_s, dtype=np.float64)
        levels = np.array(self._levels, dtype=np.int64).reshape(-1, 4)
        within = time_s <= end_s
        time_s, levels = time_s[within], levels[within]
        if len(time_s) > buckets:
            rows = thinned_rows(time_s, levels, buckets)
            time_s, levels = time_s[rows], levels[rows]
        if len(time_s) and time_s[-1] < end_s:
            time_s, levels = np.append(time_s, end_s), np.vstack((levels, levels[-1:]))
        columns = {"time_s": time_s, **dict(zip(list(LEVELS_SCHEMA)[1:], levels.T, strict=True))}
        return pl.DataFrame(columns, schema=LEVELS_SCHEMA)


def thinned_rows(time_s: NDArray[np.float64], levels: NDArray[np.int64], buckets: int) -> NDArray[np.int64]:
    """Return the rows to keep: of each bucket of time the first, the last and those of each level's extremes.

    `time_s` is (rows,) and ascending, `levels` (rows, series); the result is ascending and has at most
    `buckets * (2 + 2 * series)` rows.
    """
    span_s = max(float(time_s[-1] - time_s[0]), np.finfo(np.float64).tiny)
    bucket = np.minimum(((time_s - time_s[0]) / span_s * buckets).astype(np.int64), buckets - 1)
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    kept = [first, np.append(first[1:], len(time_s)) - 1]
    for series in levels.T:
        # Sorted by (bucket, value), the first and the last row of a bucket hold its extremes.
        order = np.lexsort((series, bucket))
        kept += [order[first], order[kept[1]]]
    return np.unique(np.concatenate(kept))
