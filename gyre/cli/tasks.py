"""One simulated run of a command: simulate, follow its progress, leave its results in a folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ..config import RunSettings
from ..events import UpdateApplied
from ..journal import Entry, Header
from ..report import Bound, ResultsFolder, RunRecorder, RunResult, finished_run, summarize
from ..report.folder import SUMMARY
from ..report.journal_file import JournalWriter
from ..report.settings_file import SETTINGS, read_settings
from ..sim.achieved import ConsumedGroups
from ..sim.matched import (
    ENTRIES_BETWEEN_LOOKS,
    leaves_split_open,
    with_best_split,
    with_keys,
    with_measured_staleness,
)
from ..sim.run import Run, check, load_cell
from ..sim.sampler import ungrouped
from ..workload.load import load_program, repeated_groups

program_of = lru_cache(maxsize=1)(load_program)  # the runs of one seed share their workload


@dataclass(frozen=True, slots=True)
class Task:
    """A run to be made. `label` names its policy in tables; `folder` is where it goes, None for nowhere."""

    label: str
    settings: RunSettings
    folder: Path | None = None
    staleness: float | None = None  # mean that phi is corrected to; None: phi stays as it is


class StoppedError(Exception):
    """The run was asked to stop."""


@dataclass(slots=True)
class _Follower:
    """Takes every entry of a run as it is made."""

    recorder: RunRecorder
    consumed: ConsumedGroups
    writer: JournalWriter | None
    on_step: Callable[[int], None]
    look: Callable[[], None]
    entries: int = 0
    updates: int = 0

    def __call__(self, entry: Entry) -> None:
        self.recorder.add(entry)
        self.consumed.add(entry)
        if self.writer is not None:
            self.writer.append(entry)
        if isinstance(entry, UpdateApplied):
            self.updates = entry.version
            self.on_step(entry.version)
        self.entries += 1
        if self.entries % ENTRIES_BETWEEN_LOOKS == 0:
            self.look()


def run_task(task: Task, on_step: Callable[[int], None], stopped: Callable[[], bool]) -> RunResult:
    """Make one run and return its result: complete or, if `stopped` said so, partial.

    With a folder, the journal is written as the run goes and the rest at its end; a finished run that stands there is
    read instead of made again.

    Raises:
        InputError: the settings cannot work, or the folder cannot be written.
        StoppedError: it was stopped before the run itself had begun.
    """

    def look() -> None:
        if stopped():
            raise StoppedError

    check(task.settings)
    earlier = _finished(task)
    if earlier is not None:
        on_step(task.settings.training.steps)
        return earlier
    settings = task.settings
    run = Run(settings, program_of(settings.workload, settings.training, settings.seed), load_cell(settings))
    run = with_best_split(run, look)
    if task.staleness is not None:
        run = with_measured_staleness(run, task.staleness, look)
    header = run.settings.model_dump(mode="json")
    with ExitStack() as stack:
        folder = None if task.folder is None else stack.enter_context(ResultsFolder.part(task.folder, header))
        writer = None if folder is None else folder.open_journal()
        follower = _Follower(RunRecorder(), ConsumedGroups(run), writer, on_step, look)
        follower.recorder.add(Header(header))
        with suppress(StoppedError):
            run.simulate(follower)
        result = _result(replace(task, settings=run.settings), follower)
        if folder is not None:
            folder.write_run(result, report=False)
    return result


def _result(task: Task, follower: _Follower) -> RunResult:
    record = follower.recorder.finish()
    found = follower.consumed.bound(follower.updates) if record.complete else None
    bound = None
    if found is not None:
        bound = Bound(lower_bound_s=found.seconds, fraction=found.fraction(record.wall_s), binding=found.term.value)
    summary = summarize(
        record, policy=task.label, seed=task.settings.seed, bound=bound, extra={"notes": _workload_notes(task.settings)}
    )
    return RunResult(record, summary)


def _workload_notes(settings: RunSettings) -> list[str]:
    """Say where groups had to be made up."""
    program, size = program_of(settings.workload, settings.training, settings.seed), settings.training.group_size
    if ungrouped(program) and size > 1:
        return [f"The workload has no groups: {size} executions at a time, drawn at random, stand for one."]
    repeated = repeated_groups(program, size)
    if repeated == 0:
        return []
    return [
        f"{repeated} of {len(program.group_ids)} groups have fewer than {size} executions: some are replayed twice."
    ]


def _finished(task: Task) -> RunResult | None:
    """Return the finished run in the task's folder, if there is one.

    Its summary is written last: without it the run was ended after its journal, and is made again for its bound.
    """
    if task.folder is None or not (task.folder / SETTINGS).exists() or not (task.folder / SUMMARY).exists():
        return None
    return finished_run(task.folder, with_choices_of(task.folder, task).model_dump(mode="json"))


def with_choices_of(folder: Path, task: Task) -> RunSettings:
    """Fill in what a run chooses for itself (split of `async`, corrected phi) as an earlier run in `folder` did."""
    settings = task.settings
    if not (folder / SETTINGS).exists():
        return settings
    chosen = read_settings(folder).get("policy_settings", {})
    if leaves_split_open(settings) and isinstance(chosen.get("train_cells"), int):
        settings = with_keys(settings, train_cells=chosen["train_cells"])
    if task.staleness is not None and isinstance(chosen.get("phi"), float):
        settings = with_keys(settings, phi=chosen["phi"])
    return settings
