"""Alerts on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ..report import RunResult
from ..watch import Severity


def alerts_table(runs: Sequence[RunResult]) -> list[Table]:
    """Return the alerts of all runs as a table, those that go on first; none where there is no alert."""
    found = [(run, alert) for run in runs for alert in run.record.health.alerts]
    if not found:
        return []
    found.sort(key=lambda item: (not item[1].active, item[1].severity is not Severity.ALARM, item[1].step))
    table = Table(title="alerts", title_justify="left", show_header=False)
    for run, alert in found:
        style = "dim" if not alert.active else "bold red" if alert.severity is Severity.ALARM else "yellow"
        name = Text(alert.title, style)
        table.add_row(*([run.summary.run_name] if len(runs) > 1 else []), name, alert.span, alert.sentence)
    return [table]
