"""Alerts, moves, the comparison with a baseline, and executions to read, as parts of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

import polars as pl

from ..watch import Alert, Severity
from .baseline import BaselineComparison, Difference
from .comparison import RunResult
from .reading_sample import ToRead
from .selection import Cancelled
from .time_unit import TimeUnit, time_unit

_OPEN_STEPS: Final = 3  # the last, whose executions are shown without being asked
_MOST_FAILED: Final = 4  # checks that are named
ABSENT: Final = "–"


def alerts_html(results: Sequence[RunResult]) -> str:
    """Return all alerts, those that go on first; empty where there is none."""
    several = len(results) > 1
    found = [(result, alert) for result in results for alert in result.record.health.alerts]
    if not found:
        return ""
    found.sort(key=lambda item: (not item[1].active, item[1].severity is not Severity.ALARM, item[1].step))
    rows = "".join(_alert_row(alert, result.summary.run_name if several else "") for result, alert in found)
    going_on = sum(alert.active for _, alert in found)
    return _section(f"Alerts: {len(found)}, of which {going_on} go on", _table((), rows))


def _alert_row(alert: Alert, run: str) -> str:
    loud = ' class="warning"' if alert.severity is Severity.ALARM else ""
    name = f"<b{loud}>{escape(alert.title)}</b>"
    cells = [f'<th scope="row">{name}</th>', *([_word(run)] if run else []), _word(alert.span), _word(alert.sentence)]
    quiet = "" if alert.active else ' class="detail"'
    return f"<tr{quiet}>{''.join(cells)}</tr>"


def baseline_html(comparison: BaselineComparison) -> str:
    """Return the comparison with the baseline."""
    rows = "".join(
        _difference_row(which, row)
        for which, rows in (("whole run", comparison.whole), ("last third of it", comparison.late))
        for row in rows
    )
    heads = ("figure", "of", "tasks", "here", "baseline", "difference", "95 % interval")
    lines = [
        f"Paired by task: {comparison.tasks:,} in both runs; {comparison.only_here:,} only here and "
        f"{comparison.only_baseline:,} only in the baseline are left out. A figure is a mean over tasks; the interval "
        "is a bootstrap over them.",
        *comparison.notes,
    ]
    notes = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return _section("Against the baseline, task by task", f'{_table(heads, rows)}<div class="notes">{notes}</div>')


def _difference_row(which: str, row: Difference) -> str:
    interval = ABSENT if row.low is None or row.high is None else f"{row.low:+.3f} to {row.high:+.3f}"
    numbers = (f"{row.tasks:,}", f"{row.own:.3f}", f"{row.baseline:.3f}", f"{row.difference:+.3f}", interval)
    return f"<tr>{_word(row.figure)}{_word(which)}{''.join(f'<td>{number}</td>' for number in numbers)}</tr>"


def cancelled_html(cancelled: Sequence[Cancelled]) -> str:
    """Return what was cancelled, and the time that it was spared; empty where nothing was."""
    if not cancelled:
        return ""
    unit = time_unit(seconds for one in cancelled for seconds in (one.ran_s, one.spared_s))
    rows = "".join(
        f"<tr>{_word(one.reason)}<td>{one.executions:,}</td><td>{one.groups:,}</td><td>{unit.of(one.ran_s):,.1f}</td>"
        f"<td>{ABSENT if one.spared_s is None else f'{unit.of(one.spared_s):,.1f}'}</td></tr>"
        for one in cancelled
    )
    heads = (
        *("cancelled because", "executions", "groups"),
        *(f"{unit.title} that they ran", f"{unit.title} spared, estimated"),
    )
    return _section("Cancelled executions", _table(heads, rows))


def transfers_html(times: pl.DataFrame) -> str:
    """Return how long the steps of moves and publishes took (`transfer_times`); empty where none was told."""
    if times.is_empty():
        return ""
    rows = "".join(
        f"<tr>{_word(step)}<td>{count:,}</td>{''.join(f'<td>{value:,.3f}</td>' for value in seconds)}</tr>"
        for step, count, *seconds in times.iter_rows()
    )
    heads = ("step of a move or publish", "times", "median, s", "longest, s", "all, s")
    return _section("Moves and publishes", _table(heads, rows))


def reading_html(chosen: Sequence[ToRead], links: Mapping[int, str]) -> str:
    """Return executions to read, by step, the last steps open; `links` leads from executions to their pages."""
    if not chosen:
        return ""
    steps = sorted({one.step for one in chosen}, reverse=True)
    unit = time_unit((one.seconds for one in chosen), most=TimeUnit.MINUTES)
    heads = ["step", "execution", "group", "why", "score", "outcome", "tokens", "tool calls", unit.title]
    checks = any(one.failed_checks for one in chosen)
    if checks:
        heads.append("checks failed")
    late = [one for one in chosen if one.step in steps[:_OPEN_STEPS]]
    early = [one for one in chosen if one.step not in steps[:_OPEN_STEPS]]
    parts = [_table(heads, "".join(_read_row(one, links, unit, checks) for one in reversed(late)))]
    if early:
        table = _table(heads, "".join(_read_row(one, links, unit, checks) for one in reversed(early)))
        parts.append(f"<details><summary>Earlier steps ({len(steps) - _OPEN_STEPS:,})</summary>{table}</details>")
    note = "<p>A few executions of each step, drawn by a seed: figures do not show what only reading does.</p>"
    return _section("Executions to read", f'<div class="notes">{note}</div>{"".join(parts)}')


def _read_row(one: ToRead, links: Mapping[int, str], unit: TimeUnit, checks: bool) -> str:
    link = links.get(one.execution)
    name = str(one.execution) if link is None else f'<a href="{escape(link)}">{one.execution}</a>'
    failed = ", ".join(one.failed_checks[:_MOST_FAILED])
    more = len(one.failed_checks) - _MOST_FAILED
    cells = (
        f"<td>{one.step}</td><td>{name}</td><td>{one.group}</td>",
        _word(one.why),
        f"<td>{ABSENT if one.score is None else f'{one.score:.3g}'}</td>",
        _word((one.outcome or ABSENT).replace("_", " ")),
        f"<td>{one.tokens:,}</td><td>{ABSENT if one.tool_calls is None else one.tool_calls}</td>",
        f"<td>{ABSENT if one.seconds is None else f'{unit.of(one.seconds):.1f}'}</td>",
        _word(failed + (f" and {more} more" if more > 0 else "")) if checks else "",
    )
    return f"<tr>{''.join(cells)}</tr>"


def _word(text: str) -> str:
    return f'<td class="word">{escape(text)}</td>'


_WORDS: Final = frozenset(
    {"figure", "of", "cancelled because", "step of a move or publish", "why", "outcome", "checks failed"}
)


def _table(heads: Sequence[str], rows: str) -> str:
    cells = "".join(f'<th{" class=word" if name in _WORDS else ""} scope="col">{name}</th>' for name in heads)
    head = f"<thead><tr>{cells}</tr></thead>" if heads else ""
    return f'<div class="table dense whole"><table>{head}<tbody>{rows}</tbody></table></div>'


def _section(title: str, inner: str) -> str:
    return f'<section class="headline wide"><h2>{escape(title)}</h2>{inner}</section>'
