"""Reads a log."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...arrays import Int32Array
from ...errors import InputError
from ..call import CallRecord
from ..check import Reason
from ..execution import ExecutionRecord
from ..tree import Refusal
from .frame import Data
from .problem import Problem
from .record import decode_call
from .scan import CallEntry, LogScan


class CallLog:
    """A log as it stood when it was opened; it may be written on meanwhile."""

    def __init__(self, path: Path) -> None:
        """Open it and walk over its headers.

        Raises:
            InputError: it cannot be opened, is no call log, or one of a newer gyre.
        """
        self._path = path
        self._data: Data = _map(path)
        try:
            self._scan = LogScan(path, self._data)
        except BaseException:
            self.close()
            raise

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
        entries = self._scan.calls.get(execution, [])
        uses = Counter(entry.base for entry in entries if entry.base is not None)
        contexts: dict[tuple[int, int], CallRecord] = {}  # calls that a later one continues, by offset and checksum
        for entry in entries:
            call = self._call(entry, contexts)
            offset = entry.frame.offset
            if uses[offset] and isinstance(call, CallRecord):
                contexts[offset, entry.frame.crc] = call
            if entry.base is not None:
                uses[entry.base] -= 1
                if not uses[entry.base]:
                    contexts.pop((entry.base, entry.base_crc), None)
            yield call
        self._give_back_pages()

    def calls(self, execution: str) -> Iterator[CallRecord]:
        """Yield those of the execution's calls that can be read; see `read`."""
        return (call for call in self.read(execution) if isinstance(call, CallRecord))

    def refusals(self, execution: str) -> tuple[Refusal, ...]:
        """Return those of the execution's calls that cannot be read; goes through all of them."""
        return tuple(call for call in self.read(execution) if isinstance(call, Refusal))

    def verify(self) -> tuple[Problem, ...]:
        """Read everything once, and return all that is damaged or lost."""
        frames = (entry.frame for entries in self._scan.calls.values() for entry in entries)
        return self._scan.problems([frame for frame in frames if frame.payload(self._data) is None])

    def _call(self, entry: CallEntry, contexts: dict[tuple[int, int], CallRecord]) -> CallRecord | Refusal:
        header = entry.frame.header(self._data)
        payload = entry.frame.payload(self._data)
        if payload is None:
            return self._refusal(entry, header, "is damaged")
        base = None if entry.base is None else contexts.get((entry.base, entry.base_crc))
        if base is None and entry.base is not None:
            return self._refusal(entry, header, f"continues the call at byte {entry.base}, which cannot be read")
        try:
            return decode_call(header, payload, _leading(base, header["base"][2]) if base else None)
        except (ValueError, KeyError, TypeError) as error:
            return self._refusal(entry, header, f"cannot be understood ({type(error).__name__}: {error})")

    def _give_back_pages(self) -> None:
        """Let the system count what was read as its own cache again, so that a long log does not fill memory."""
        if isinstance(self._data, mmap.mmap) and not self._data.closed:
            self._data.madvise(mmap.MADV_DONTNEED)

    def _refusal(self, entry: CallEntry, header: dict[str, Any], what: str) -> Refusal:
        call_id, sequence = str(header.get("call_id", "")), header.get("sequence", -1)
        text = (
            f"call {call_id} of execution {header['execution']}: its record at byte {entry.frame.offset} of "
            f"{self._path} {what}; it is left out"
        )
        return Refusal(call_id, sequence, Reason.UNREADABLE, text)

    def close(self) -> None:
        """Let the file go."""
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def __enter__(self) -> Self:
        """Return the log."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _map(path: Path) -> Data:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a call log, or a folder of them") from error


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
