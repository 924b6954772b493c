"""The folder of a finished run: where its journal and its log of calls are, and what is missing if one is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from ...errors import InputError
from ...journal import JOURNAL_FILE, Entry, Header, JournalError, from_line
from ...report.journal_file import JournalReader
from ...scoring.evaluation_log import read_evaluations
from ...trajectory.call import CallRecord
from ...trajectory.call_log import CallLogs, open_logs
from ...trajectory.execution import ExecutionRecord
from ...trajectory.tree import Refusal
from .history import RunExecution, RunHistory

EVALUATIONS: Final = "evaluations.jsonl"
_SUFFIX: Final = ".calls"
_REMEDY: Final = "give the folder of a run that `gyre run` made"


class RunFolder:
    """A run's journal, and the calls of its executions. Close it, or use it in a with statement."""

    def __init__(self, path: Path) -> None:
        """Open a run's folder.

        Raises:
            InputError: it is no run's, it is that of a comparison or of a simulated run, which keep no calls, a file
                of it is damaged, or the run came to nothing.
        """
        self.path = path
        _refuse_other(path)
        journal = JournalReader(path / JOURNAL_FILE)
        try:
            self.history = RunHistory.of(journal)
        except InputError:
            raise
        except (LookupError, ValueError, JournalError) as error:
            raise InputError(f"{path / JOURNAL_FILE}: contradicts itself ({error!r}); {_REMEDY}") from error
        self.torn_line = journal.torn_line
        if not self.history.cells:
            raise InputError(f"{path}: its cells never came up; {_REMEDY}, and that got further")
        self._logs = _logs(path, self.history)
        self._evaluation_s = _evaluation_s(path / EVALUATIONS)
        self._records = {record.execution: record for record in self._logs.executions()}
        self._attempts = _attempts((*self._records, *self._logs.unfinished()))

    @property
    def problems(self) -> tuple[str, ...]:
        """What of the log of calls cannot be read, a line each."""
        return tuple(map(str, self._logs.problems))

    @property
    def strangers(self) -> int:
        """Executions in the log of calls that the journal does not know."""
        return sum(number not in self.history.executions for number in self._attempts)

    def entries(self) -> Iterator[Header | Entry]:
        """Iterate over the journal once more."""
        return iter(JournalReader(self.path / JOURNAL_FILE))

    def name(self, execution: RunExecution) -> str | None:
        """Return an execution's name in the log of calls, that of its last attempt; None where it has no calls."""
        attempts = self._attempts.get(execution.number)
        return None if attempts is None else attempts[max(attempts)]

    def calls(self, name: str) -> list[CallRecord | Refusal]:
        """Return an execution's calls, and in place of one that cannot be read, why."""
        return list(self._logs.read(name))

    def record(self, name: str) -> ExecutionRecord | None:
        """Return what the log says of an execution that ended."""
        return self._records.get(name)

    def evaluation_s(self, name: str) -> float | None:
        """Return seconds that evaluating an execution took, without waits for an evaluator; None where unknown."""
        return self._evaluation_s.get(name)

    def close(self) -> None:
        """Let the files go."""
        self._logs.close()

    def __enter__(self) -> Self:
        """Return the folder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _refuse_other(path: Path) -> None:
    if path.is_file():
        raise InputError(f"{path}: a file; {_REMEDY}")
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; {_REMEDY}")
    if not (path / JOURNAL_FILE).is_file():
        raise InputError(f"{path}: holds no {JOURNAL_FILE}; {_REMEDY}")
    if _is_comparison(path / JOURNAL_FILE):
        raise InputError(f"{path}: a comparison's folder; give that of one run")


def _is_comparison(journal: Path) -> bool:
    with suppress(OSError, UnicodeDecodeError, JournalError), journal.open(encoding="utf-8") as file:
        header = from_line(file.readline(), 1)
        return isinstance(header, Header) and "variants" in header.settings
    return False


def _logs(path: Path, history: RunHistory) -> CallLogs:
    folders = sorted({file.parent for pattern in (f"*{_SUFFIX}", f"*/*{_SUFFIX}") for file in path.glob(pattern)})
    if len(folders) == 1:
        return open_logs(folders[0])
    if folders:
        raise InputError(f"{path}: logs of calls in several folders ({', '.join(map(str, folders))}); keep one")
    if {"workload", "cluster"} <= history.settings.keys():
        source = history.settings["workload"]
        workload = source.get("profile") or source.get("trace") if isinstance(source, dict) else None
        raise InputError(
            f"{path}: a simulated run, whose folder has a journal but no calls, so that their tokens and waits are not "
            f"known; simulate its workload {workload or ''} again, or give the folder of a real run"
        )
    raise InputError(f"{path}: holds a journal but no log of calls (*{_SUFFIX}); copy the run's log into it")


def _evaluation_s(path: Path) -> dict[str, float]:
    """Return seconds of all attempts to evaluate each execution, by its name; none where they were not recorded."""
    found: dict[str, float] = {}
    for recorded in read_evaluations(path) if path.is_file() else ():
        if not isinstance(recorded, str):
            name = recorded.key.execution
            found[name] = found.get(name, 0.0) + recorded.evaluation.seconds
    return found


def _attempts(names: Iterable[str]) -> dict[int, dict[int, str]]:
    """Return names in the log, by number of the execution and of the attempt: they are `EXECUTION-ATTEMPT`."""
    found: dict[int, dict[int, str]] = {}
    for name in names:
        number, _, attempt = name.partition("-")
        if number.isdecimal() and attempt.isdecimal():
            found.setdefault(int(number), {})[int(attempt)] = name
    return found
