"""A comparison as a table: one column a policy, one row a figure, so that it fits a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from .comparison import Comparison, PolicyFigures
from .summary import Spread
from .time_unit import TimeUnit, time_unit
from .use import IDLE_USES, OVERHEAD_USES, USE_TITLES, GpuUse

ABSENT: Final = "–"
_SMALLEST_SHARE: Final = 0.0005
_MOST_REASONS: Final = 6


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of every policy. `detail` lines explain the line above; a `section` begins a block of lines."""

    heading: str
    values: tuple[str, ...]
    detail: bool = False
    section: bool = False


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _spread(values: Spread) -> str:
    if values.mean is None or values.p99 is None or values.max is None:
        return ABSENT
    return f"{values.mean:.2f} / {values.p99:g} / {values.max:g}"


def _speed_up(row: PolicyFigures, baseline: str) -> str:
    if row.policy == baseline:
        return "1 (baseline)"
    return ABSENT if row.speed_up is None else f"{row.speed_up:.2f}×"


def _interval(row: PolicyFigures) -> str:
    interval = row.speed_up_interval
    return ABSENT if interval is None else f"{interval.low:.2f} – {interval.high:.2f}"


def _wall_s(row: PolicyFigures) -> float:
    return row.hours * TimeUnit.HOURS.seconds


def _wall_time(row: PolicyFigures, unit: TimeUnit) -> str:
    time = f"{unit.of(_wall_s(row)):.2f}"
    if row.complete:
        return time
    return f"{time} ({row.runs_complete} of {len(row.seeds)} runs)" if row.runs_complete else f"{time}, so far"


def comparison_lines(comparison: Comparison) -> Iterator[Line]:
    """Yield the lines of the comparison, in the order in which they are read."""
    rows = comparison.policies

    def line(heading: str, value: Callable[[PolicyFigures], str], detail: bool = False, section: bool = False) -> Line:
        return Line(heading, tuple(value(row) for row in rows), detail, section)

    unit = time_unit(map(_wall_s, rows))
    mean = "" if all(len(row.seeds) == 1 for row in rows) else ", mean over seeds"
    yield line(f"{unit.title}{mean}", lambda row: _wall_time(row, unit))
    if len(rows) > 1:
        yield line(f"speed-up over {comparison.baseline}", lambda row: _speed_up(row, comparison.baseline))
        if any(row.speed_up_interval is not None for row in rows):
            yield line("95 % interval", _interval, detail=True)
    if any(row.published_speed_up is not None for row in rows):
        yield line(
            "published", lambda row: f"{row.published_speed_up:.2f}×" if row.published_speed_up else ABSENT, detail=True
        )
    if any(row.bound is not None for row in rows):
        yield line(
            "of its own clairvoyant bound", lambda row: ABSENT if row.bound is None else percent(row.bound.fraction)
        )
        yield line(
            "its binding term", lambda row: ABSENT if row.bound is None else _words(row.bound.binding), detail=True
        )
    yield from _gpu_lines(rows)
    yield line("staleness, mean / p99 / max", lambda row: _spread(row.staleness), section=True)
    yield line("of tokens", lambda row: _spread(row.token_staleness), detail=True)
    yield line("executions lost", lambda row: f"{row.executions_lost} of {row.executions}", section=True)
    reasons = dict.fromkeys(reason for row in rows for reason in row.lost_by_reason)
    for reason in list(reasons)[:_MOST_REASONS]:
        yield Line(_words(reason), tuple(str(row.lost_by_reason.get(reason, 0)) for row in rows), detail=True)


def _gpu_lines(rows: list[PolicyFigures]) -> Iterator[Line]:
    def shares(uses: tuple[GpuUse, ...], heading: str, detail: bool = False, section: bool = False) -> Line:
        values = tuple(percent(sum(row.gpu_share[use] for use in uses)) for row in rows)
        return Line(heading, values, detail, section)

    yield shares((GpuUse.SERVING_BUSY, GpuUse.SERVING_UNMETERED), "GPU time: serving", section=True)
    yield shares((GpuUse.TRAINING,), "GPU time: training")
    for heading, uses in (("GPU time: overhead", OVERHEAD_USES), ("GPU time: idle", IDLE_USES)):
        yield shares(uses, heading)
        for use in uses:
            if any(row.gpu_share[use] >= _SMALLEST_SHARE for row in rows):
                yield shares((use,), USE_TITLES[use], detail=True)


def comparison_table(comparison: Comparison, title: str | None = None) -> Table:
    """Return the comparison as a rich table; its notes stand below."""
    table = Table(title=title, caption="\n".join(comparison.all_notes) or None, caption_justify="left")
    table.add_column("")
    for row in comparison.policies:
        table.add_column(row.policy, justify="right")
    for line in comparison_lines(comparison):
        if line.section:
            table.add_section()
        heading = f"  {line.heading}" if line.detail else line.heading
        table.add_row(heading, *line.values, style="dim" if line.detail else None)
    return table
