"""The tasks of a run: what a harness is told, and what only its evaluator knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gyre.errors import InputError


@dataclass(frozen=True, slots=True)
class Task:
    """One task."""

    name: str
    prompt: str = ""  # what the harness is asked to do
    files: Path | None = None  # folder whose content the working folder begins with
    data: Mapping[str, Any] = field(default_factory=dict)  # for evaluators, such as the expected result; JSON values


class Tasks(Protocol):
    """The data of a run."""

    def task(self, place: int) -> Task:
        """Return the task at a place of the data, from 0; the same place always gives the same task."""
        ...


class TaskList:
    """A list of tasks, gone through in order, again and again."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Take the list.

        Raises:
            InputError: it is empty.
        """
        if not tasks:
            raise InputError("there are no tasks; give at least one")
        self._tasks = tuple(tasks)

    def task(self, place: int) -> Task:
        """See `Tasks.task`."""
        return self._tasks[place % len(self._tasks)]
