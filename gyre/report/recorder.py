"""Reads a journal entry by entry and hands each to the book that it belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from .. import commands as cmd
from ..events import RunResumed, RunStarted
from ..journal import Entry, Header
from .level_log import LevelLog
from .rollout_book import RolloutBook
from .training_book import TrainingBook

FIRST_WITH_TASKS: Final = 2  # version of the journal


class RunBook:
    """A run so far. Entries after `StopRun` are not of the run any more and change nothing."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.start_s = 0.0
        self.now_s = 0.0
        self.stopped = False
        self.problems: Counter[str] = Counter()
        self.levels = LevelLog()
        self.rollouts = RolloutBook(self.levels, self.problems)
        self.training = TrainingBook(self.rollouts, self.problems)
        self._handlers: dict[type, Callable[[float, Any], None]] = {
            **self.rollouts.handlers,
            **self.training.handlers,
            RunResumed: self._run_resumed,
        }

    def _run_resumed(self, now_s: float, entry: RunResumed) -> None:
        for book in (self.rollouts, self.training):
            book.handlers[RunResumed](now_s, entry)

    def add(self, entry: Header | Entry) -> None:
        """Take the next entry of the journal."""
        if self.stopped:
            return
        if isinstance(entry, Header):
            self.settings = entry.settings
            self.rollouts.names_tasks = entry.version >= FIRST_WITH_TASKS
            return
        kind = type(entry)
        if entry.time_s > self.now_s:
            self.now_s = entry.time_s
        elif entry.time_s < self.now_s:
            self.problems["time runs backwards"] += 1
        if kind is RunStarted:
            self.start_s = self.now_s
        elif kind is cmd.StopRun:
            self.stopped = True
        handler = self._handlers.get(kind)
        if handler is not None:
            try:
                handler(self.now_s, entry)
            except KeyError:
                self.problems[f"{kind.__name__} names an unknown id"] += 1
