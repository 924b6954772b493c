"""Reads a results folder back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import InputError
from .comparison import Comparison, RunResult, compare_runs
from .folder import JOURNAL, RUNS, SUMMARY
from .journal_file import JournalReader
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


def open_results(path: Path) -> Results:
    """Read a results folder: figures come from the journals, what a caller added (bounds, notes) from `summary.json`.

    Raises:
        InputError: it is no results folder, or a journal is damaged other than by a torn last line.
    """
    settings = read_settings(path)
    if (path / JOURNAL).exists() and not (path / RUNS).is_dir():
        return Results(path, settings, [read_run(path)], None)
    folders = sorted(journal.parent for journal in (path / RUNS).glob(f"*/{JOURNAL}"))
    if not folders:
        raise InputError(f"{path}: holds no {JOURNAL}, neither itself nor in a folder below {RUNS}/; run it again")
    earlier = _read(Comparison, path / SUMMARY)
    runs = [read_run(folder) for folder in folders]
    if earlier is None:
        return Results(path, settings, runs, compare_runs(runs))
    order = {row.policy: index for index, row in enumerate(earlier.policies)}
    runs.sort(key=lambda run: order.get(run.policy, len(order)))
    given = {row.policy: row.speed_up_interval for row in earlier.policies if row.speed_up_interval is not None}
    comparison = compare_runs(
        runs,
        baseline=earlier.baseline,
        intervals={policy: interval for policy, interval in given.items() if interval.source == "given"},
        published={
            row.policy: row.published_speed_up for row in earlier.policies if row.published_speed_up is not None
        },
        notes=earlier.notes,
    )
    return Results(path, settings, runs, comparison)


def read_run(path: Path) -> RunResult:
    """Read one run from its journal; a torn last line is left out and counted among the summary's problems.

    Raises:
        InputError: the journal is missing or damaged.
    """
    reader = JournalReader(path / JOURNAL)
    record = record_run(reader)
    if reader.torn_line is not None:
        record.problems[TORN_LINE] = 1
    earlier = _read(Summary, path / SUMMARY)
    if earlier is None:
        return RunResult(record, summarize(record))
    bound, extra = earlier.bound, earlier.extra
    return RunResult(record, summarize(record, policy=earlier.policy, seed=earlier.seed, bound=bound, extra=extra))


def finished_run(path: Path, settings: Mapping[str, Any]) -> RunResult | None:
    """Return the run that folder `path` holds if it is complete and was made with `settings`, else None.

    Raises:
        InputError: its journal is damaged.
    """
    if not (path / JOURNAL).exists() or read_settings(path) != as_read(settings):
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
