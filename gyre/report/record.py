"""What happened in a run, computed from its journal alone, in one pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from ..cluster import CellSpec
from ..journal import Entry, Header
from ..watch import RunHealth, Watcher, WatchSettings
from .execution_log import executions_frame
from .group_log import groups_frame, token_staleness_frame
from .losses import losses_frame
from .recorder import RunBook
from .step_log import steps_frame
from .transfer_log import transfers_frame


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """A run as tables. Times are seconds on the run's clock; each schema is beside the code that makes the table.

    `complete` is false for a run that was stopped before its last step, or still goes on. `problems` counts journal
    entries that make no sense (an execution that nobody dispatched, a time before the one before); the tables leave
    them out.
    """

    settings: dict[str, Any]
    start_s: float
    end_s: float
    complete: bool
    specs: tuple[CellSpec, ...]
    steps: pl.DataFrame  # step_log.STEPS_SCHEMA
    micro_steps: pl.DataFrame  # step_log.MICRO_STEPS_SCHEMA
    groups: pl.DataFrame  # group_log.GROUPS_SCHEMA
    executions: pl.DataFrame  # execution_log.EXECUTIONS_SCHEMA
    cells: pl.DataFrame  # lanes.CELLS_SCHEMA
    usage: pl.DataFrame  # lanes.USAGE_SCHEMA
    meters: pl.DataFrame  # lanes.METERS_SCHEMA
    levels: pl.DataFrame  # level_log.LEVELS_SCHEMA
    losses: pl.DataFrame  # losses.LOSSES_SCHEMA
    transfers: pl.DataFrame  # transfer_log.TRANSFERS_SCHEMA; none in a simulated run
    token_staleness: pl.DataFrame  # (staleness, tokens) over trained tokens
    publishes: tuple[tuple[float, int], ...]  # (time_s, version)
    problems: dict[str, int]
    health: RunHealth

    @property
    def gpus(self) -> int:
        """GPUs of all cells."""
        return sum(spec.gpus for spec in self.specs)

    @property
    def wall_s(self) -> float:
        """Length of the run."""
        return self.end_s - self.start_s


class RunRecorder:
    """Takes a journal entry by entry; `finish` may be asked at any time, also while the run goes on.

    Thresholds of alerts are the journal's own unless `watch` gives others.
    """

    def __init__(self, watch: WatchSettings | None = None) -> None:
        self._book = RunBook()
        self._watcher = Watcher(watch)

    def add(self, entry: Header | Entry) -> None:
        """Take the next entry of the journal."""
        self._book.add(entry)
        self._watcher.add(entry)

    def finish(self) -> RunRecord:
        """Return the run so far."""
        book, rollouts, training = self._book, self._book.rollouts, self._book.training
        groups, executions, end_s = rollouts.groups.values(), rollouts.executions.values(), book.now_s
        return RunRecord(
            settings=book.settings,
            start_s=book.start_s,
            end_s=end_s,
            complete=book.stopped,
            specs=training.specs,
            steps=steps_frame(training.steps.values(), book.start_s),
            micro_steps=training.micro_steps.frame(end_s),
            groups=groups_frame(groups),
            executions=executions_frame(executions),
            cells=training.lanes.cells(end_s),
            usage=training.lanes.usage(end_s),
            meters=training.lanes.meters(),
            levels=book.levels.frame(end_s),
            losses=losses_frame(groups, executions),
            transfers=transfers_frame(training.transfers),
            token_staleness=token_staleness_frame(groups),
            publishes=tuple(training.publishes),
            problems=dict(book.problems),
            health=self._watcher.health(),
        )


def record_run(entries: Iterable[Header | Entry], watch: WatchSettings | None = None) -> RunRecord:
    """Return what happened in the run that `entries` tell of; `watch` as for `RunRecorder`."""
    recorder = RunRecorder(watch)
    add = recorder.add
    for entry in entries:
        add(entry)
    return recorder.finish()
