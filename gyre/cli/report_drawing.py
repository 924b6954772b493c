"""What `gyre report` writes: all that a folder holds, or while a process works there, the page alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..atomic import write_text_atomic
from ..errors import InputError
from ..folder_lock import InUseError
from ..report import ResultsFolder, open_results
from ..report.folder import REPORT
from ..report.page import report_page
from ..report.settings_file import read_settings
from .run_health import RunHealthParts

if TYPE_CHECKING:
    from ..report import Results
    from ..watch import WatchSettings


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What was asked for. With `out` the page goes there, and nothing else is written."""

    folder: Path
    out: Path | None
    watch: WatchSettings | None
    baseline: Path | None
    calls: Path | None
    calls_name: str
    read_seed: int

    @property
    def page(self) -> Path:
        """Where the page goes."""
        return self.folder / REPORT if self.out is None else self.out

    def parts(self, results: Results) -> RunHealthParts | None:
        """Return what one run's report has besides its figures; None for a comparison.

        Raises:
            InputError: something is asked for that only one run has, or cannot be read.
        """
        if results.comparison is None:
            return RunHealthParts.of(results.runs[0], self.baseline, self.calls, self.calls_name, self.read_seed)
        if self.baseline is not None or self.calls is not None:
            raise InputError(f"{self.folder}: --baseline and --calls are for one run; give a folder below its runs/")
        return None


@dataclass(frozen=True, slots=True)
class DrawnReport:
    """What was written, and of what. `in_use`: a process works in the folder, so that only the page is new."""

    results: Results
    parts: RunHealthParts | None
    in_use: bool

    @property
    def going_on(self) -> bool:
        """Whether the runs were not over yet."""
        return self.in_use and not _is_over(self.results)


def draw_report(request: ReportRequest) -> DrawnReport:
    """Write the report that was asked for.

    Raises:
        InputError: the folder holds no results, or what was asked for cannot be read or written.
    """
    try:
        return _draw_whole(request)
    except InUseError:
        drawn = _draw_so_far(request)
    try:
        return _draw_whole(request)  # the process has ended meanwhile: what it did last is in
    except InUseError:
        return drawn


def _draw_whole(request: ReportRequest) -> DrawnReport:
    folder = request.folder
    with ResultsFolder.create(folder, read_settings(folder), resume=True) as target:
        results = open_results(folder, request.watch)
        parts = request.parts(results)
        if request.out is not None:
            write_text_atomic(request.page, _page(request, results, parts, going_on=False))
        elif parts is not None:
            target.write_run(results.runs[0], more=parts.html(parts.write_pages(folder)))
        elif results.comparison is not None:
            target.write_comparison(results.runs, results.comparison)
    return DrawnReport(results, parts, in_use=False)


def _draw_so_far(request: ReportRequest) -> DrawnReport:
    """Write the page of what the journals hold now; tables and summary are the working process's own to write."""
    before = _stamp(request.page)
    results = open_results(request.folder, request.watch, going_on=True)
    parts = request.parts(results)
    page = _page(request, results, parts, going_on=not _is_over(results))
    if request.out is not None or _stamp(request.page) == before:  # else the process has written its last, and later
        write_text_atomic(request.page, page)
    return DrawnReport(results, parts, in_use=True)


def _page(request: ReportRequest, results: Results, parts: RunHealthParts | None, *, going_on: bool) -> str:
    more = None if parts is None else parts.html(parts.write_pages(request.page.parent))
    return report_page(results.runs, results.comparison, results.settings, more, going_on=going_on)


def _is_over(results: Results) -> bool:
    return results.complete if results.comparison is None else results.comparison.complete


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written anew; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
