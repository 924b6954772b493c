"""What a run is at, from its journal as it is written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gyre.atomic import write_text_atomic
from gyre.cluster import CellState
from gyre.errors import InputError
from gyre.events import CellChanged, CellFailed, CellJoined, RunResumed, RunStarted, UpdateApplied
from gyre.journal import Entry, Header
from gyre.watch import Alert, StepFigures, Watcher, WatchSettings, metrics_jsonl

from ..run.book import RunBook
from ..run.tasks import Tasks

_log = logging.getLogger(__name__)


class RunFollower:
    """Hears every entry of a journal, also those that a restart reads again.

    `on_step` is told of an update, and of alerts that begin or end, once the run itself is at them.
    """

    def __init__(
        self,
        watch: WatchSettings | None,
        metrics: Path,
        on_step: Callable[[StepFigures], None] = lambda step: None,
        on_alert: Callable[[Alert], None] = lambda alert: None,
    ) -> None:
        """`metrics` is a file that gets a line for each step."""
        self.watcher = Watcher(watch or WatchSettings())
        self.cells: dict[int, tuple[CellState, float]] = {}  # where each is, and since when
        self.begun = False  # cells are up
        self.live = False
        self._metrics = metrics
        self._on_step = on_step
        self._on_alert = on_alert
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="metrics")

    def close(self) -> None:
        """Wait until all is written."""
        self._writer.shutdown(wait=True)

    def __call__(self, entry: Header | Entry) -> None:
        """Take the next entry."""
        changes = self.watcher.add(entry)
        match entry:
            case RunStarted() | RunResumed():
                self.cells = {spec.cell: (spec.state, entry.time_s) for spec in entry.cells}
                self.begun = self.live
            case CellChanged():
                self.cells[entry.cell] = entry.state, entry.time_s
            case CellFailed():
                self.cells[entry.cell] = CellState.FAILED, entry.time_s
            case CellJoined():
                self.cells[entry.cell] = CellState.SERVING, entry.time_s
            case _:
                pass
        if not self.live:
            return
        if isinstance(entry, UpdateApplied):
            self._writer.submit(self._write, metrics_jsonl(self.watcher.health()))
            self._on_step(self.watcher.steps[-1])
        for alert in changes:
            self._on_alert(alert)

    def _write(self, text: str) -> None:
        try:
            write_text_atomic(self._metrics, text)
        except InputError as error:  # the report writes them all once more
            _log.warning("metrics are not written", extra={"reason": str(error)})


class FollowedBook(RunBook):
    """Hands on what it notes."""

    def __init__(self, tasks: Tasks, follower: RunFollower) -> None:
        """Take the run's tasks, and who follows."""
        super().__init__(tasks)
        self._follower = follower

    def note(self, entry: Header | Entry) -> None:
        """See `RunBook.note`."""
        super().note(entry)
        self._follower(entry)
