"""What `gyre report` adds to one run: its baseline, the lengths that were trained, executions to read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from ..atomic import disk_errors, write_text_atomic
from ..errors import InputError
from ..report import RunResult, read_run
from ..report.baseline import BaselineComparison, compare_with_baseline
from ..report.health_tables import ABSENT, baseline_html, reading_html
from ..report.reading_sample import ToRead, reading_sample
from ..report.selection import LengthSelection, length_selection
from ..trajectory.inspection import TokenText, inspection_page
from ..trajectory.selection import Selection
from .common import counted
from .store_listing import viewed

_PAGES: Final = "read"  # folder of the executions' pages
_MOST_PAGES: Final = 200


@dataclass(slots=True)
class RunHealthParts:
    """What was asked for besides the run's own figures."""

    selection: LengthSelection
    chosen: list[ToRead]
    baseline: BaselineComparison | None = None
    calls: Path | None = None
    calls_name: str = "{execution}"
    problems: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, run: RunResult, baseline: Path | None, calls: Path | None, calls_name: str, seed: int
    ) -> RunHealthParts:
        """Work it out.

        Raises:
            InputError: the baseline cannot be read or paired, or the pattern of names is none.
        """
        compared = None
        if baseline is not None:
            try:
                compared = compare_with_baseline(run.record, read_run(baseline).record)
            except InputError as error:
                raise InputError(f"--baseline {baseline}: {error}") from error
        try:
            calls_name.format(execution=0, group=0)
        except (KeyError, IndexError, ValueError) as error:
            raise InputError(f"--calls-name {calls_name}: only {{execution}} and {{group}} can be put in") from error
        return cls(length_selection(run.record), reading_sample(run.record, seed), compared, calls, calls_name)

    @property
    def asked(self) -> bool:
        """Whether a person asked for more than the summary."""
        return self.baseline is not None or self.calls is not None

    def write_pages(self, folder: Path) -> dict[int, str]:
        """Write a page of the last executions to read, where there are calls; return links by execution.

        Executions that the calls lack are counted among `problems`.
        """
        if self.calls is None:
            return {}
        if not self.calls.exists():
            raise InputError(f"--calls {self.calls}: does not exist; give recorded calls or a trajectory store")
        pages = folder / _PAGES
        with disk_errors(pages):
            pages.mkdir(exist_ok=True)
        links: dict[int, str] = {}
        refused: list[str] = []
        for one in self.chosen[-_MOST_PAGES:]:
            name = self.calls_name.format(execution=one.execution, group=one.group)
            try:
                view, _ = viewed(self.calls, name, Selection())
            except InputError as error:
                refused.append(str(error))
                continue
            path = pages / f"{one.execution}.html"
            write_text_atomic(path, inspection_page(view, TokenText()))
            links[one.execution] = f"{_PAGES}/{path.name}"
        if refused:
            example = self.calls_name.format(execution=self.chosen[-1].execution, group=self.chosen[-1].group)
            self.problems.append(
                f"{self.calls}: {len(refused)} of {len(self.chosen[-_MOST_PAGES:])} executions to read are not there "
                f"(looked for names like {example!r}; --calls-name says how they are named). First: {refused[0]}"
            )
        return links

    def html(self, links: dict[int, str]) -> str:
        """Return the parts of the page."""
        compared = "" if self.baseline is None else baseline_html(self.baseline)
        return compared + reading_html(self.chosen, links)

    def tables(self) -> list[Any]:
        """Return what a terminal shows."""
        parts: list[Any] = []
        if self.selection.sentence:
            parts.append(Text(self.selection.sentence))
        if self.baseline is not None:
            parts.append(_baseline_table(self.baseline))
        return parts

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "selection": self.selection.model_dump(mode="json"),
            "baseline": None if self.baseline is None else self.baseline.model_dump(mode="json"),
            "to_read": [asdict(one) for one in self.chosen],
            "problems": self.problems,
        }


def _baseline_table(comparison: BaselineComparison) -> Table:
    table = Table(
        title=f"against the baseline, {counted(comparison.tasks, 'task')} in both "
        f"({comparison.only_here:,} only here, {comparison.only_baseline:,} only there)",
        title_justify="left",
        caption="\n".join(comparison.notes) or None,
        caption_justify="left",
    )
    for name in ("figure", "of", "here", "baseline", "difference", "95 % interval"):
        table.add_column(name, justify="left" if name in ("figure", "of") else "right")
    for which, rows in (("whole run", comparison.whole), ("last third", comparison.late)):
        for row in rows:
            interval = ABSENT if row.low is None or row.high is None else f"{row.low:+.3f} to {row.high:+.3f}"
            numbers = f"{row.own:.3f}", f"{row.baseline:.3f}", f"{row.difference:+.3f}", interval
            table.add_row(row.figure, which, *numbers)
    return table
