"""Executions and groups that were not trained, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import polars as pl

from .execution_log import ExecutionRow
from .group_log import GroupRow

LOSSES_SCHEMA: Final[dict[str, pl.DataType]] = {
    "unit": pl.Enum(["execution", "group"]),
    "reason": pl.String(),
    "count": pl.Int64(),
}


def losses_frame(groups: Iterable[GroupRow], executions: Iterable[ExecutionRow]) -> pl.DataFrame:
    """Return counts by unit and reason (`LOSSES_SCHEMA`), the most frequent first.

    An execution that still runs, waits or is scored when the record ends is not lost.
    """
    lost = Counter(reason for row in executions if (reason := row.why_lost()) is not None)
    dropped = Counter(group.dropped_reason for group in groups if group.dropped_reason is not None)
    rows = [
        (unit, reason, count)
        for unit, counter in (("execution", lost), ("group", dropped))
        for reason, count in sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    ]
    return pl.DataFrame(rows, schema=LOSSES_SCHEMA, orient="row")
