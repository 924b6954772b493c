"""Recorded calls wherever they stand: a call log, a folder of them, or JSON lines."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

from ..errors import InputError
from .call import CallRecord
from .call_log import CallLogs, CallLogWriter, open_logs, read_calls_jsonl
from .call_log.frame import FORMAT
from .call_log.writer import SUFFIX
from .execution import ExecutionRecord
from .scores import Score, scored_records
from .streaming.ingestion import read_tree
from .tree import Refusal, Tree

_LOG_BEGINS: Final = f'{{"format":"{FORMAT}"'.encode()
_REMEDY: Final = f"give a call log ({SUFFIX}), a folder of them, or JSON lines"


class RecordedCalls:
    """Calls of executions, read execution by execution. Close it, or use it in a with statement."""

    def __init__(
        self,
        path: Path | str,
        scores: Mapping[str, Score] | None = None,
        *,
        on_record: Callable[[int], object] | None = None,
    ) -> None:
        """Open calls; what they are shows in the first bytes.

        JSON lines may have their executions interleaved, so they are first written to a call log, a temporary file
        without a name. `on_record(done)` is called after each; what it raises ends the reading.
        An execution has ended where the calls have a record of it, or `scores` do; those override the record.

        Raises:
            InputError: there is nothing such, it cannot be read, or a score has no group.
        """
        self.path = path = Path(path)
        with ExitStack() as opened:
            log = path if _is_log(path) else _as_log(path, opened, on_record)
            self._logs: CallLogs = opened.enter_context(open_logs(log))
            recorded = {record.execution: record for record in self._logs.executions()}
            self._names = tuple(dict.fromkeys((*recorded, *self._logs.unfinished())))
            self._ended, self._unfinished = scored_records(self._names, recorded, scores or {})
            self._opened = opened.pop_all()

    @property
    def problems(self) -> tuple[str, ...]:
        """What cannot be read, a line each."""
        return tuple(map(str, self._logs.problems))

    @property
    def names(self) -> tuple[str, ...]:
        """All executions that have calls or a record."""
        return self._names

    def executions(self) -> tuple[ExecutionRecord, ...]:
        """Return the executions that ended."""
        return tuple(self._ended.values())

    def unfinished(self) -> tuple[str, ...]:
        """Return the executions of which nothing says that they ended."""
        return tuple(self._unfinished)

    def record(self, execution: str) -> ExecutionRecord | None:
        """Return what is known of an execution that ended."""
        return self._ended.get(execution)

    def call_count(self, execution: str) -> int:
        """Return how many calls of an execution there are, with those that cannot be read."""
        return self._logs.call_count(execution)

    def read(self, execution: str) -> Iterator[CallRecord | Refusal]:
        """Yield an execution's calls, and in place of one that cannot be read, why."""
        return self._logs.read(execution)

    def tree(self, execution: str) -> Tree:
        """Return the tree of an execution, ended or not, with the calls that cannot be read among the refused.

        Raises:
            InputError: there is no such execution.
        """
        if execution not in self._names:
            raise InputError(f"{self.path}: no execution {execution!r}; leave it out to see those there")
        return read_tree(self, self.record(execution) or ExecutionRecord(execution, group=""))

    def close(self) -> None:
        """Let the files go."""
        self._opened.close()

    def __enter__(self) -> Self:
        """Return the calls."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close them."""
        self.close()


def _is_log(path: Path) -> bool:
    """Whether `path` is a call log by its first bytes or its name, or a folder."""
    try:
        if path.is_dir() or path.suffix == SUFFIX:
            return True
        if not path.is_file() and path.exists():
            raise InputError(f"{path}: not a regular file; write the calls to one first")
        with path.open("rb") as file:
            return file.read(len(_LOG_BEGINS)) == _LOG_BEGINS
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or type(error).__name__}); {_REMEDY}") from error


def _as_log(path: Path, opened: ExitStack, on_record: Callable[[int], object] | None) -> Path:
    """Write JSON lines as a call log that is there until `opened` is closed, or this process ends, however it ends."""
    with ExitStack() as writing:
        folder = writing.enter_context(TemporaryDirectory())
        writer = writing.enter_context(CallLogWriter(Path(folder) / f"calls{SUFFIX}"))
        log = opened.enter_context(writer.path.open("rb"))
        shutil.rmtree(folder)
        done = 0
        for done, record in enumerate(read_calls_jsonl(path), start=1):
            writer.append_record(record)
            if on_record is not None:
                on_record(done)
    if not done:
        raise InputError(f"{path}: holds no call; {_REMEDY}")
    return Path(f"/dev/fd/{log.fileno()}")
