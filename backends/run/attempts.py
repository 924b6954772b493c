"""The folders of executions: an attempt each, with its home, its working folder, and how it ended."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gyre.atomic import disk_errors
from gyre.outcome import Outcome
from gyre.scoring.leftovers import kill_marked

from .harness_command import FOLDER_MARK, RUN_MARK
from .harness_process import ProcessMark, end_sessions
from .ports import Ended
from .sealed import read_sealed, write_sealed
from .tasks import Task

_END: Final = "end.json"
_KIND: Final = "execution end"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to run an execution, in a folder of its own."""

    execution: int
    number: int
    folder: Path

    @property
    def name(self) -> str:
        """Its name in the log of calls; no two attempts share one, so no sample mixes their calls."""
        return f"{self.execution}-{self.number}"

    @property
    def work(self) -> Path:
        """Where the harness works, and what its evaluator looks at."""
        return self.folder / "work"

    @property
    def process(self) -> Path:
        """Where the harness's process is recorded."""
        return self.folder / "process.json"

    def make(self, task: Task) -> None:
        """Make the folder, with what the task begins with.

        Raises:
            InputError: the system refuses.
        """
        with disk_errors(self.folder):
            for part in ("home", "tmp"):
                (self.folder / part).mkdir(parents=True)
            if task.files is None:
                self.work.mkdir()
            else:
                shutil.copytree(task.files, self.work, symlinks=True)
            (self.folder / "prompt.txt").write_text(task.prompt, encoding="utf-8")

    def ended(self) -> Ended | None:
        """Return how the attempt ended, None where it has not.

        Raises:
            InputError: the record is damaged.
        """
        found = read_sealed(self.folder / _END, _KIND, "delete it, and the execution runs again")
        if found is None:
            return None
        return Ended(
            outcome=Outcome(found["outcome"]),
            calls=self.name,
            folder=self.work,
            version_tokens=tuple((version, tokens) for version, tokens in found["version_tokens"]),
            tool_calls=found["tool_calls"],
            steps=found["steps"],
            recorded=found["recorded"],
        )

    def end(self, ended: Ended) -> None:
        """Make it durable how the attempt ended.

        Raises:
            InputError: the system refuses.
        """
        values = {
            "outcome": ended.outcome.value,
            "version_tokens": ended.version_tokens,
            "tool_calls": ended.tool_calls,
            "steps": ended.steps,
            "recorded": ended.recorded,
        }
        write_sealed(self.folder / _END, _KIND, values)

    @property
    def variable(self) -> str:
        """What everything that was started for the attempt has in its environment, also outside its session."""
        return f"{FOLDER_MARK}={self.folder}"


class Attempts:
    """The attempts of a run's executions, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def of(self, execution: int) -> list[Attempt]:
        """Return the attempts to run an execution, the last one last."""
        folder = self.folder / str(execution)
        try:
            numbers = sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal())
        except FileNotFoundError:
            return []
        return [Attempt(execution, number, folder / str(number)) for number in numbers]

    def next(self, execution: int) -> Attempt:
        """Return the attempt that comes after all that were begun."""
        before = self.of(execution)
        number = before[-1].number + 1 if before else 0
        return Attempt(execution, number, self.folder / str(execution) / str(number))

    def ended(self, execution: int) -> Ended | None:
        """Return how an execution ended, None where it has not.

        Raises:
            InputError: its record is damaged.
        """
        attempts = self.of(execution)
        return attempts[-1].ended() if attempts else None

    def executions(self) -> list[int]:
        """Return the executions that have folders."""
        try:
            return [int(entry.name) for entry in self.folder.iterdir() if entry.name.isdecimal()]
        except FileNotFoundError:
            return []

    def end_leftovers(self) -> int:
        """End what an earlier driver left running; return how many processes that was.

        Raises:
            InputError: a record is damaged.
        """
        unended = [
            attempt for execution in self.executions() for attempt in self.of(execution) if attempt.ended() is None
        ]
        marks = [mark for attempt in unended if (mark := ProcessMark.read(attempt.process)) is not None]
        return end_sessions(marks) + kill_marked(f"{RUN_MARK}={self.folder}")

    def remove(self, executions: Collection[int]) -> None:
        """Delete the folders of executions; what the system refuses to delete stays."""
        for execution in executions:
            shutil.rmtree(self.folder / str(execution), ignore_errors=True)
