"""Appends calls to a log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Self

from ...atomic import append_whole, disk_errors, sync_folder
from ...errors import InputError
from ...folder_lock import FileLock
from ..call import CallRecord
from ..execution import ExecutionRecord
from .contexts import CHAIN_LIMIT, Contexts
from .frame import FILE_HEADER, Kind, crc_of, encode_frame
from .log_bytes import LogBytes
from .problem import Problem
from .record import Base, encode_call, encode_execution, require_fields
from .scan import LogScan

SUFFIX: Final = ".calls"
CONTEXT_BYTES: Final = 1 << 29  # for a thousand executions: of half a megabyte each the log hardly grows


class CallLogWriter:
    """An open log, of which this is the only writer.

    A record is with the operating system when `append` returns: it outlives this process, whatever ends it. After
    `flush` or `close` it outlives a power failure too. One thread at a time may use a writer.
    """

    def __init__(self, path: Path | str, *, context_bytes: int = CONTEXT_BYTES) -> None:
        """Create the log, or open it to append; a torn tail, as an interrupted writer leaves it, is cut off.

        `context_bytes` bounds the memory for inputs of calls whose execution has not ended; with less than the open
        conversations need, more of the inputs are written in full.

        Raises:
            InputError: the name does not end in .calls, another process writes this log, the file is something else
                or of a newer gyre, or the system refuses.
        """
        path = Path(path)
        if path.suffix != SUFFIX:
            raise InputError(f"{path}: not a name for a call log; let it end in {SUFFIX}")
        self._path = path
        self._contexts = Contexts(context_bytes)
        self._descriptor = -1
        self._problems: tuple[Problem, ...] = ()
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(path)
        try:
            with disk_errors(path):
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                self._end = self._recover()
                sync_folder(path.parent)
        except BaseException:
            self._release()
            raise

    def _recover(self) -> int:
        """Cut off a torn tail, write the file's header where it is missing, and return where the next frame goes."""
        size = os.fstat(self._descriptor).st_size
        if size:
            scan = LogScan(self._path, LogBytes(self._descriptor, size))
            self._problems = scan.problems()
            size = scan.end
            os.ftruncate(self._descriptor, size)
        if size == 0:
            append_whole(self._descriptor, FILE_HEADER, 0)
            size = len(FILE_HEADER)
        return size

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was wrong with the log when it was opened; a last one that reached the file's end has been cut off."""
        return self._problems

    @property
    def context_bytes(self) -> int:
        """Memory now in use for inputs of calls."""
        return self._contexts.nbytes

    def append(self, call: CallRecord) -> None:
        """Write a call as it is; whether it can be used is judged when it is read.

        Raises:
            InputError: the system refuses (the log stays as it was before), or a field is not of the record's type.
            ValueError: the writer is closed.
        """
        require_fields(call)
        match = self._contexts.match(call)
        linked = match if match is not None and match.context.chain < CHAIN_LIMIT else None
        offset = self._end
        base = Base(offset - linked.context.offset, linked.context.crc, linked.shared) if linked else None
        frame = encode_frame(Kind.CALL, *encode_call(call, base))
        self._append(frame)
        self._contexts.add(call, offset, crc_of(frame), linked.context.chain + 1 if linked else 1, match)

    def append_execution(self, record: ExecutionRecord) -> None:
        """Write what is known of an execution that ended; a later record of the same execution replaces this one.

        A score of NaN is kept as None: there is no valid one.

        Raises:
            InputError: the system refuses (the log stays as it was before), a field is not of the record's type, or a
                number is infinite.
            ValueError: the writer is closed.
        """
        self._append(encode_frame(Kind.EXECUTION, encode_execution(record), b""))
        self._contexts.forget(record.execution)

    def append_record(self, record: CallRecord | ExecutionRecord) -> None:
        """Write a record of either kind, as an importer yields them; see `append` and `append_execution`."""
        if isinstance(record, CallRecord):
            self.append(record)
        else:
            self.append_execution(record)

    def _append(self, frame: bytes) -> None:
        if self._descriptor < 0:
            raise ValueError(f"{self._path}: the log is closed")
        with disk_errors(self._path):
            append_whole(self._descriptor, frame, self._end)
        self._end += len(frame)

    def flush(self) -> None:
        """Make all that was appended outlive a power failure.

        Raises:
            InputError: the system refuses.
        """
        if self._descriptor >= 0:
            with disk_errors(self._path):
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Flush, and let the log go; a second call does nothing.

        Raises:
            InputError: the system refuses to flush.
        """
        try:
            self.flush()
        finally:
            self._release()

    def _release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._contexts = Contexts(0)
        self._lock.release()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
