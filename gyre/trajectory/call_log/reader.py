"""Reads a log."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...arrays import Int32Array
from ...errors import InputError
from ..call import CallRecord
from ..check import UNKNOWN_SEQUENCE, Reason
from ..execution import ExecutionRecord
from ..record_fields import is_whole
from ..tree import Refusal
from .log_bytes import Data, LogBytes
from .problem import UNREADABLE, Problem, problem_words
from .record import decode_call
from .scan import CallEntry, LogScan


class CallLog:
    """A log as it stood when it was opened; it may be written on meanwhile.

    The file is open only while something is read from it, so any number of logs may be in use. It must stay until then:
    where it was removed or replaced meanwhile, reading raises InputError; what was cut off its end is damaged.
    """

    def __init__(self, path: Path | str) -> None:
        """Walk over its headers.

        Raises:
            InputError: it cannot be opened, is no call log, or one of a newer gyre.
        """
        self._path = path = Path(path)
        with _opened(path) as descriptor:
            found = os.fstat(descriptor)
            self._identity, self._size = (found.st_dev, found.st_ino), found.st_size
            self._scan = LogScan(path, LogBytes(descriptor, self._size))

    def refresh(self) -> None:
        """Take in what was appended since the log was opened, or refreshed; only that is walked over.

        Raises:
            InputError: the file cannot be read, or another stands there now.
        """
        with self._file() as descriptor:
            size = os.fstat(descriptor).st_size
            if size > self._size:
                self._size = size
                self._scan.extend(LogBytes(descriptor, size))

    @contextmanager
    def _bytes(self) -> Iterator[LogBytes]:
        with self._file() as descriptor:
            yield LogBytes(descriptor, self._size)

    @contextmanager
    def _file(self) -> Iterator[int]:
        with _opened(self._path) as descriptor:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != self._identity:
                raise InputError(f"{self._path}: another file stands there now; open it anew")
            yield descriptor

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What cannot be read, as far as the headers show; `verify` looks at everything."""
        return self._scan.problems()

    def executions(self) -> tuple[ExecutionRecord, ...]:
        """Return the ended executions, in the order in which their last records were written."""
        return tuple(self._scan.records.values())

    def unfinished(self) -> tuple[str, ...]:
        """Return executions with calls but without a record: still running, or lost with their worker."""
        return tuple(execution for execution in self._scan.calls if execution not in self._scan.records)

    def call_count(self, execution: str) -> int:
        """Return how many calls of an execution the log holds, 0 where it has none."""
        return len(self._scan.calls.get(execution, ()))

    def read(self, execution: str) -> Iterator[CallRecord | Refusal]:
        """Yield the execution's calls in the order of the log, each exactly as it was appended.

        In place of a call that is damaged, or whose input continues one that is, comes a refusal. Only this
        execution's frames are read. Treat the arrays as constants: later inputs are put together from them.
        """
        entries = self._scan.calls.get(execution)
        if entries:
            with self._bytes() as data:
                yield from self._read(entries, data)

    def _read(self, entries: list[CallEntry], data: Data) -> Iterator[CallRecord | Refusal]:
        uses = Counter(entry.base for entry in entries if entry.base is not None)
        contexts: dict[tuple[int, int], CallRecord] = {}  # calls that a later one continues, by offset and checksum
        for entry in entries:
            call = self._call(entry, data, contexts)
            offset = entry.frame.offset
            if uses[offset] and isinstance(call, CallRecord):
                contexts[offset, entry.frame.crc] = call
            if entry.base is not None:
                uses[entry.base] -= 1
                if not uses[entry.base]:
                    contexts.pop((entry.base, entry.base_crc), None)
            yield call

    def calls(self, execution: str) -> Iterator[CallRecord]:
        """Yield those of the execution's calls that can be read; see `read`."""
        return (call for call in self.read(execution) if isinstance(call, CallRecord))

    def refusals(self, execution: str) -> tuple[Refusal, ...]:
        """Return those of the execution's calls that cannot be read; goes through all of them."""
        return tuple(call for call in self.read(execution) if isinstance(call, Refusal))

    def verify(self) -> tuple[Problem, ...]:
        """Read everything once, and return all that is damaged or lost."""
        frames = (entry.frame for entries in self._scan.calls.values() for entry in entries)
        with self._bytes() as data:
            return self._scan.problems([frame for frame in frames if frame.payload(data) is None])

    def _call(self, entry: CallEntry, data: Data, contexts: dict[tuple[int, int], CallRecord]) -> CallRecord | Refusal:
        try:
            header = entry.frame.header(data)
        except ValueError:  # it was sound when the log was opened
            return self._refusal(entry, {}, "was changed while it was read")
        payload = entry.frame.payload(data)
        if payload is None:
            return self._refusal(entry, header, "is damaged")
        base = None if entry.base is None else contexts.get((entry.base, entry.base_crc))
        if base is None and entry.base is not None:
            return self._refusal(entry, header, f"continues the call at byte {entry.base}, which cannot be read")
        try:
            return decode_call(header, payload, _leading(base, header["base"][2]) if base else None)
        except UNREADABLE as error:
            return self._refusal(entry, header, f"cannot be understood ({problem_words(error)})")

    def _refusal(self, entry: CallEntry, header: dict[str, Any], what: str) -> Refusal:
        call_id, given = str(header.get("call_id", "")), header.get("sequence")
        sequence: int = given if is_whole(given) else UNKNOWN_SEQUENCE
        execution = header.get("execution", "(unknown)")
        text = (
            f"call {call_id} of execution {execution}: its record at byte {entry.frame.offset} of {self._path} {what}; "
            "it is left out"
        )
        return Refusal(call_id, sequence, Reason.UNREADABLE, text)

    def close(self) -> None:
        """Do nothing: no file is open between one reading and the next."""

    def __enter__(self) -> Self:
        """Return the log."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave."""
        self.close()


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without a writer: no waiting
    except OSError as error:
        raise _unreadable(path, error.strerror or type(error).__name__) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _unreadable(path, "not a regular file")
        yield descriptor
    except OSError as error:
        raise _unreadable(path, error.strerror or type(error).__name__) from error
    finally:
        os.close(descriptor)


def _unreadable(path: Path, why: str) -> InputError:
    return InputError(f"{path}: cannot be read ({why}); give a call log, or a folder of them")


def _leading(base: CallRecord, tokens: int) -> Int32Array:
    """Return the first tokens of a call's input and output together.

    Raises:
        ValueError: it has fewer.
    """
    own = len(base.input_ids)
    if not 0 <= tokens <= own + len(base.output_ids):
        raise ValueError(f"shares {tokens} tokens with a call of {own + len(base.output_ids)}")
    if tokens <= own:
        return base.input_ids[:tokens]
    return np.concatenate((base.input_ids, base.output_ids[: tokens - own]))
