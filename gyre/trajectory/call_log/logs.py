"""Several logs as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Self

from ...errors import InputError
from ..call import CallRecord
from ..execution import ExecutionRecord
from ..tree import Refusal
from .problem import Problem
from .reader import CallLog
from .writer import SUFFIX


class CallLogs:
    """The logs of a run, in the order of their names: an execution's calls may stand in several of them.

    Where several logs have a record of one execution, the one of the last name counts.
    """

    def __init__(self, paths: tuple[Path, ...]) -> None:
        """Open them all.

        Raises:
            InputError: one cannot be opened, is no call log, or one of a newer gyre.
        """
        with ExitStack() as opened:
            self._logs = tuple(opened.enter_context(CallLog(path)) for path in paths)
            self._opened = opened.pop_all()
        self._records = {record.execution: record for log in self._logs for record in log.executions()}

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return tuple(log.path for log in self._logs)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What cannot be read, as far as the headers show; see `CallLog.problems`."""
        return tuple(chain.from_iterable(log.problems for log in self._logs))

    def executions(self) -> tuple[ExecutionRecord, ...]:
        """Return the ended executions."""
        return tuple(self._records.values())

    def unfinished(self) -> tuple[str, ...]:
        """Return executions with calls but without a record in any log: still running, or lost."""
        found = chain.from_iterable(log.unfinished() for log in self._logs)
        return tuple(execution for execution in dict.fromkeys(found) if execution not in self._records)

    def call_count(self, execution: str) -> int:
        """Return how many calls of an execution the logs hold."""
        return sum(log.call_count(execution) for log in self._logs)

    def read(self, execution: str) -> Iterator[CallRecord | Refusal]:
        """Yield the execution's calls, or why one cannot be read; see `CallLog.read`."""
        return chain.from_iterable(log.read(execution) for log in self._logs)

    def calls(self, execution: str) -> Iterator[CallRecord]:
        """Yield those of the execution's calls that can be read."""
        return chain.from_iterable(log.calls(execution) for log in self._logs)

    def refusals(self, execution: str) -> tuple[Refusal, ...]:
        """Return those of the execution's calls that cannot be read."""
        return tuple(chain.from_iterable(log.refusals(execution) for log in self._logs))

    def verify(self) -> tuple[Problem, ...]:
        """Read everything once, and return all that is damaged or lost."""
        return tuple(chain.from_iterable(log.verify() for log in self._logs))

    def close(self) -> None:
        """Let the files go."""
        self._opened.close()

    def __enter__(self) -> Self:
        """Return the logs."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close them."""
        self.close()


def open_logs(path: Path | str) -> CallLogs:
    """Open a log, or all logs directly in a folder.

    Raises:
        InputError: there is none, or one cannot be opened, is no call log, or one of a newer gyre.
    """
    path = Path(path)
    try:
        if not path.is_dir():
            return CallLogs((path,))
        paths = tuple(sorted(file for file in path.iterdir() if file.suffix == SUFFIX))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a call log, or a folder of them") from error
    if not paths:
        raise InputError(f"{path}: holds no call log; give a folder with files that end in {SUFFIX}")
    return CallLogs(paths)
