"""The results folder of a run or of a comparison: what is in it, and who may write there."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import polars as pl

from ..atomic import disk_errors, write_atomic, write_text_atomic
from ..errors import InputError
from ..folder_lock import FolderLock
from ..journal import JOURNAL_FILE, Header
from ..parquet_errors import parquet_errors
from ..watch import alerts_jsonl, metrics_jsonl
from .comparison import Comparison, RunResult
from .journal_file import JournalWriter
from .page import report_page
from .settings_file import SETTINGS, as_read, first_difference, read_settings, settings_toml
from .trace_events import write_trace_events

JOURNAL: Final = JOURNAL_FILE
SUMMARY: Final = "summary.json"
REPORT: Final = "report.html"
TIMELINE: Final = "timeline.json"
METRICS: Final = "metrics.jsonl"
ALERTS: Final = "alerts.jsonl"
RUNS: Final = "runs"  # a comparison's folder of runs
TABLES: Final = (
    "steps",
    "micro_steps",
    "groups",
    "executions",
    "cells",
    "usage",
    "meters",
    "levels",
    "losses",
    "transfers",
)


def run_folder(path: Path, policy: str, seed: int | str | None) -> Path:
    """Return where the run of a comparison in `path` with this policy (its label) and seed is."""
    return path / RUNS / f"{policy}-seed{seed}"


class ResultsFolder:
    """A folder that this process writes a run's or a comparison's results into; others are kept out until `close`."""

    def __init__(self, path: Path, settings: Mapping[str, Any], lock: FolderLock | None) -> None:
        """Use `create`."""
        self.path = path
        self.settings = settings
        self._lock = lock
        self._journal: JournalWriter | None = None

    @classmethod
    def create(
        cls, path: Path, settings: Mapping[str, Any], *, resume: bool = False, free: Collection[str] = ()
    ) -> Self:
        """Make the folder, or take an empty one, and write `settings.toml`.

        With `resume` it may hold results of the same settings, but for keys, dotted, in `free`.

        Raises:
            InUseError: another process writes there.
            InputError: the folder holds something else, or cannot be written.
        """
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(path)
        try:
            _refuse_other_content(path, settings, resume, free)
            write_text_atomic(path / SETTINGS, settings_toml(settings))
        except BaseException:
            lock.release()
            raise
        return cls(path, settings, lock)

    @classmethod
    def part(cls, path: Path, settings: Mapping[str, Any]) -> Self:
        """Return the folder of a run that belongs to what this user's process, or its parent, has created already."""
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path / SETTINGS, settings_toml(settings))
        return cls(path, settings, None)

    def run_path(self, policy: str, seed: int | None) -> Path:
        """Return where the run of a comparison with this policy (its label) and seed goes."""
        return run_folder(self.path, policy, seed)

    def open_journal(self, *, append: bool = False) -> JournalWriter:
        """Begin `journal.jsonl`, headed by the settings, or go on with it; `close` closes it."""
        self._journal = JournalWriter(self.path / JOURNAL, Header(dict(self.settings)), append=append)
        return self._journal

    def write_run(self, result: RunResult, *, report: bool = True, more: str | None = None) -> None:
        """Write a run's summary, tables, metrics and alerts, and with `report` the HTML report and the timeline.

        `more` is HTML that the report ends with, as for `report_page`.
        """
        self._write_tables([result], marked=False)
        write_text_atomic(self.path / METRICS, metrics_jsonl(result.record.health))
        write_text_atomic(self.path / ALERTS, alerts_jsonl(result.record.health.alerts))
        if report:
            self._write_pictures([result], None, more)
        write_text_atomic(self.path / SUMMARY, result.summary.to_json())

    def write_comparison(self, results: Sequence[RunResult], comparison: Comparison) -> None:
        """Write a comparison's summary, tables (all runs, told apart by `policy` and `seed`), report and timeline.

        Its `journal.jsonl` lists the runs and where the journal of each is. To be read back, its settings need a table
        `variants` with the policies' labels as keys, the baseline first.
        """
        write_text_atomic(self.path / JOURNAL, self._index(results))
        self._write_tables(results, marked=True)
        self._write_pictures(results, comparison)
        write_text_atomic(self.path / SUMMARY, comparison.to_json())

    def _index(self, results: Sequence[RunResult]) -> str:
        lines = [Header(dict(self.settings)).to_line()]
        for result in results:
            summary = result.summary
            journal = self.run_path(summary.policy, summary.seed) / JOURNAL
            line = {
                "run": summary.policy,
                "seed": summary.seed,
                "complete": summary.complete,
                "steps": summary.steps,
                "wall_s": result.record.wall_s,
                "journal": str(journal.relative_to(self.path)) if journal.exists() else None,
            }
            lines.append(json.dumps(line, separators=(",", ":")))
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """Close the journal and let the folder go; a second call does nothing."""
        try:
            if self._journal is not None:
                self._journal.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Self:
        """Return the folder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _write_tables(self, results: Sequence[RunResult], *, marked: bool) -> None:
        for name in TABLES:
            frames = [getattr(result.record, name) for result in results]
            if marked:
                frames = [_marked(frame, result) for frame, result in zip(frames, results, strict=True)]
            path = self.path / f"{name}.parquet"
            with parquet_errors(path):
                write_atomic(path, pl.concat(frames).write_parquet)

    def _write_pictures(
        self, results: Sequence[RunResult], comparison: Comparison | None, more: str | None = None
    ) -> None:
        write_text_atomic(self.path / REPORT, report_page(results, comparison, self.settings, more))
        write_atomic(self.path / TIMELINE, lambda temporary: write_trace_events(temporary, results))


def _marked(frame: pl.DataFrame, result: RunResult) -> pl.DataFrame:
    marks = (pl.lit(result.policy).alias("policy"), pl.lit(result.summary.seed, dtype=pl.Int64).alias("seed"))
    return frame.select(*marks, pl.all())


def _refuse_other_content(path: Path, settings: Mapping[str, Any], resume: bool, free: Collection[str]) -> None:
    with disk_errors(path):
        entries = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
    if not entries:
        return
    if not (path / SETTINGS).exists():
        raise InputError(f"{path}: holds files that are no results of gyre; give a new or an empty folder")
    if difference := first_difference(read_settings(path), as_read(settings), free):
        raise InputError(
            f"{path}: holds the results of other settings: {difference} ({SETTINGS}); give those, or another folder"
        )
    if not resume:
        raise InputError(
            f"{path}: holds results of these settings already; add --resume to go on, or give another folder"
        )
