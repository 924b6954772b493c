"""Reads a results folder back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import InputError
from ..watch import WatchSettings
from .comparison import Comparison, RunResult, compare_runs
from .folder import JOURNAL, RUNS, SUMMARY, run_folder
from .journal_file import JournalReader, whole_length
from .record import record_run
from .settings_file import as_read, read_settings
from .summary import Summary, summarize

M = TypeVar("M", bound=BaseModel)
TORN_LINE = "torn last line of the journal"


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """What a results folder holds: one run, or a comparison of several."""

    path: Path
    settings: dict[str, Any]
    runs: list[RunResult]
    comparison: Comparison | None

    @property
    def complete(self) -> bool:
        """Whether every run came to its last step."""
        return all(run.summary.complete for run in self.runs)


def open_results(path: Path, watch: WatchSettings | None = None, *, going_on: bool = False) -> Results:
    """Read a results folder: figures come from the journals, what a caller added (bounds, notes) from `summary.json`.

    `watch` holds thresholds of alerts that are used instead of the runs' own. `going_on` says that a process appends to
    the journals meanwhile: they are read as far as they go, and a torn last line is the one being written, no damage.

    It is a comparison if its settings have `variants`; they give the policies' order, the baseline first.

    Raises:
        InputError: it is no results folder, holds no run, or a journal is damaged other than by a torn last line.
    """
    settings = read_settings(path)
    variants = settings.get("variants")
    if not isinstance(variants, Mapping):
        if going_on and not _begun(path):
            raise InputError(f"{path}: the run has not begun; look again in a moment")
        return Results(path, settings, [read_run(path, watch=watch, going_on=going_on)], None)
    labels = list(variants)
    folders = _run_folders(path, labels, settings.get("seeds"))
    there = {run: _begun(folder) if going_on else (folder / JOURNAL).exists() for run, folder in folders.items()}
    runs = [read_run(folder, run[0], watch, going_on=going_on) for run, folder in folders.items() if there[run]]
    if not runs and going_on:
        raise InputError(f"{path}: no run of the comparison has begun; look again in a moment")
    if not runs:
        raise InputError(f"{path}: a comparison without a {JOURNAL} in any folder below {RUNS}/; run it again")
    missing = [f"{label}, seed {seed}" for label, seed in folders if not there[label, seed]]
    return Results(path, settings, runs, _compared(path, runs, labels, missing))


def _begun(path: Path) -> bool:
    journal = path / JOURNAL
    return journal.exists() and whole_length(journal) > 0


def _run_folders(path: Path, labels: Sequence[str], seeds: Any) -> dict[tuple[str, str], Path]:
    """Return the folders of planned runs and of those that are there besides, by label and seed; seed by seed."""
    planned = [(label, str(seed)) for seed in range(seeds) for label in labels] if isinstance(seeds, int) else []
    parts = [folder.parent.name.rpartition("-seed") for folder in (path / RUNS).glob(f"*/{JOURNAL}")]
    found = [(label, seed) for label, _, seed in parts if label in labels and (label, seed) not in planned]
    found.sort(key=lambda run: (len(run[1]), run[1], labels.index(run[0])))
    return {(label, seed): run_folder(path, label, seed) for label, seed in (*planned, *found)}


def _compared(path: Path, runs: Sequence[RunResult], labels: Sequence[str], missing: Sequence[str]) -> Comparison:
    earlier = _read(Comparison, path / SUMMARY)
    if earlier is None:
        return compare_runs(runs, order=labels, missing=missing)
    intervals = {row.policy: row.speed_up_interval for row in earlier.policies if row.speed_up_interval is not None}
    published = {row.policy: row.published_speed_up for row in earlier.policies if row.published_speed_up is not None}
    return compare_runs(
        runs,
        baseline=earlier.baseline if any(run.policy == earlier.baseline for run in runs) else None,
        intervals={policy: interval for policy, interval in intervals.items() if interval.source == "given"},
        published=published,
        notes=earlier.notes,
        order=labels,
        missing=missing,
    )


def read_run(
    path: Path, policy: str | None = None, watch: WatchSettings | None = None, *, going_on: bool = False
) -> RunResult:
    """Read one run from its journal; a torn last line is left out and counted among the summary's problems.

    `policy` is its label in a comparison, `watch` and `going_on` as for `open_results`. An earlier bound is kept only
    for the time that it was a fraction of.

    Raises:
        InputError: the journal is missing, empty or damaged.
    """
    reader = JournalReader(path / JOURNAL)
    record = record_run(reader, watch)
    if reader.torn_line is not None and not going_on:
        record.problems[TORN_LINE] = 1
    earlier = _read(Summary, path / SUMMARY)
    if earlier is None:
        return RunResult(record, summarize(record, policy=policy))
    label = earlier.policy if policy is None else policy
    summary = summarize(record, policy=label, seed=earlier.seed, bound=earlier.bound, extra=earlier.extra)
    if not summary.complete or summary.wall_hours != earlier.wall_hours:
        summary = summary.model_copy(update={"bound": None})
    return RunResult(record, summary)


def finished_run(path: Path, settings: Mapping[str, Any]) -> RunResult | None:
    """Return the run that folder `path` holds if it is complete and was made with `settings`, else None.

    Raises:
        InputError: its journal is damaged.
    """
    if not _begun(path) or read_settings(path) != as_read(settings):
        return None
    result = read_run(path)
    return result if result.summary.complete else None


def _read(kind: type[M], path: Path) -> M | None:
    """Return the model in a JSON file, None where there is no file; raise InputError for one of another kind."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: no {kind.__name__.lower()} of gyre ({reason}); delete it to make it anew") from error
