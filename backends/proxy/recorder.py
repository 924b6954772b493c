"""The proxy's log of calls: appended to in a thread of its own, read back after a restart."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from gyre.errors import InputError
from gyre.trajectory.call import CallRecord
from gyre.trajectory.call_log import CallLog, CallLogWriter
from gyre.trajectory.execution import ExecutionRecord

LOG_NAME: Final = "proxy.calls"
_TRY_AGAIN_S: Final = 5.0  # after a write that failed; what is found out by a call costs its generation
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class LogUnwritableError(InputError):
    """The system refuses to write the log; nothing was written."""


class Recorder:
    """A call log that does not hold up the event loop. Records are written in the order in which they are given."""

    def __init__(self, folder: Path) -> None:
        """Create the log in `folder`, or go on with it.

        Raises:
            InputError: another process writes it, it is no call log, or the system refuses.
        """
        self.path = folder / LOG_NAME
        self._writer = CallLogWriter(self.path)
        self._failed_s: float | None = None  # when the last write failed, unless one has worked since
        # One thread: the writer takes no more, and the order of records is that of their appending.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="call-log")
        try:
            with CallLog(self.path) as log:
                self.ended: dict[str, ExecutionRecord] = {record.execution: record for record in log.executions()}
                self._known = set(log.unfinished())
        except BaseException:
            self.close()
            raise

    def read(self, execution: str) -> tuple[CallRecord, ...]:
        """Return what an earlier process recorded of an execution that had not ended; nothing of any other."""
        if execution not in self._known:
            return ()
        with CallLog(self.path) as log:
            return tuple(log.calls(execution))

    @property
    def failing(self) -> bool:
        """Whether the last write failed, a moment ago: after a while the next call may try."""
        return self._failed_s is not None and time.monotonic() - self._failed_s < _TRY_AGAIN_S

    async def append(self, record: CallRecord) -> None:
        """Write a call; it outlives this process when this returns.

        Raises:
            LogUnwritableError: the system refuses; nothing was written.
        """
        await self._run(lambda: self._writer.append(record))

    async def append_execution(self, record: ExecutionRecord) -> None:
        """Write that an execution has ended. It outlives a power failure then, with all of its calls.

        Raises:
            LogUnwritableError: the system refuses.
        """
        await self._run(lambda: self._append_execution(record))
        self.ended[record.execution] = record

    def _append_execution(self, record: ExecutionRecord) -> None:
        self._writer.append_execution(record)
        self._writer.flush()

    async def _run(self, write: Callable[[], _T]) -> _T:
        # Shielded: who waits may be cancelled, what was begun is written all the same.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, self._tried, write))

    def _tried(self, write: Callable[[], _T]) -> _T:
        """Write, and keep in mind whether that works."""
        try:
            done = write()
        except InputError as error:
            if not isinstance(error.__cause__, OSError):
                raise  # the record's fault, not the disk's
            if self._failed_s is None:
                _log.error("%s", error)
            self._failed_s = time.monotonic()
            raise LogUnwritableError(str(error)) from error
        if self._failed_s is not None:
            _log.warning("%s: can be written again", self.path)
            self._failed_s = None
        return done

    def close(self) -> None:
        """Write what is waiting, and let the log go."""
        self._thread.shutdown(wait=True)
        self._writer.close()

    @property
    def problems(self) -> tuple[str, ...]:
        """What was wrong with the log when it was opened."""
        return tuple(map(str, self._writer.problems))
