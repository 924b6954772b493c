"""What a log holds, from its headers alone."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from ...errors import InputError
from ..execution import ExecutionRecord
from ..record_fields import shown
from .frame import FILE_HEADER, FORMAT, FORMAT_VERSION, Frame, Gap, Kind, scan
from .log_bytes import Data
from .problem import UNREADABLE, Problem, problem_words
from .record import decode_execution

_FIRST_LINE: Final = 4096  # bytes within which another version's header ends
_TORN: Final = "the end of the log is torn, as a writer leaves it that was interrupted or is writing just now"
_DAMAGED: Final = "damaged, not a record"
_ORPHAN: Final = "a call that continues one which is not in the log"


@dataclass(frozen=True, slots=True)
class CallEntry:
    """Where a call stands, and the call that its input continues."""

    frame: Frame
    base: int | None  # offset of that call's frame
    base_crc: int = 0


class LogScan:
    """The calls and the executions' records of a log, and what of it cannot be read."""

    def __init__(self, path: Path, data: Data) -> None:
        """Walk over the headers.

        Raises:
            InputError: this is no call log, or one of a newer gyre.
        """
        self.path = path
        self.calls: dict[str, list[CallEntry]] = {}  # by execution, in the order of the log
        self.records: dict[str, ExecutionRecord] = {}
        self.end = len(FILE_HEADER) if data[: len(FILE_HEADER)] == FILE_HEADER else 0  # of the last frame
        self._size = len(data)
        self._lost: dict[int, tuple[int, str]] = {}  # size and what is wrong, by offset
        _refuse_newer(path, data)
        self._walk(data)
        if self.end == 0 and not FILE_HEADER.startswith(data[: len(FILE_HEADER)]):
            raise InputError(f"{path}: not a call log; give a file that gyre wrote, or import JSON lines")

    def extend(self, data: Data) -> None:
        """Walk over what was appended since; `data` is the whole log."""
        self._lost = {
            offset: lost for offset, lost in self._lost.items() if offset < self.end
        }  # a torn end may be whole
        self._size = len(data)
        self._walk(data)

    def _walk(self, data: Data) -> None:
        for part in scan(data, self.end):
            if isinstance(part, Gap):
                self._lost[part.offset] = part.size, _DAMAGED
                continue
            self.end = part.end
            try:
                self._add(part, part.header(data))
            except UNREADABLE as error:
                what = f"a record that this gyre cannot read ({problem_words(error)})"
                self._lost[part.offset] = part.end - part.offset, what

    def _add(self, frame: Frame, header: dict[str, Any]) -> None:
        if frame.kind == Kind.EXECUTION:
            record = decode_execution(header)
            self.records.pop(record.execution, None)  # the later one counts, and stands where it was written
            self.records[record.execution] = record
            return
        if frame.kind != Kind.CALL:
            raise ValueError(f"kind {frame.kind}")
        entry = CallEntry(frame, None)
        if "base" in header:
            back, crc, _ = header["base"]
            entry = CallEntry(frame, frame.offset - int(back), int(crc))
        execution = header["execution"]
        if not isinstance(execution, str):
            raise ValueError(f"execution is {shown(execution)}, expected a text")
        self.calls.setdefault(execution, []).append(entry)

    def problems(self, damaged: Iterable[Frame] = ()) -> tuple[Problem, ...]:
        """Return all that is lost, by place; `damaged` are calls whose payload was found damaged."""
        lost = dict(self._lost)
        lost.update((frame.offset, (frame.end - frame.offset, _DAMAGED)) for frame in damaged)
        orphans, dependents = self._dependents(lost)
        lost.update((frame.offset, (frame.end - frame.offset, _ORPHAN)) for frame in orphans)
        return tuple(self._problem(offset, *lost[offset], dependents[offset]) for offset in sorted(lost))

    def _problem(self, offset: int, size: int, what: str, dependents: int) -> Problem:
        remedy = "what stands before and after it is read"
        if offset == self.end and offset + size == self._size:
            what, remedy = _TORN, "all before it is read, and the next writer cuts it off"
        return Problem(self.path, offset, size, what, remedy, dependents)

    def _dependents(self, lost: dict[int, tuple[int, str]]) -> tuple[list[Frame], Counter[int]]:
        """Follow the calls that cannot be read for want of another.

        Return those whose base is not in the log, nor in a region that is known to be lost, and how many calls hang on
        each region, by its offset.
        """
        starts = sorted(lost)
        orphans: list[Frame] = []
        dependents: Counter[int] = Counter()
        for entries in self.calls.values():
            readable: dict[int, int] = {}  # checksum by offset
            hangs_on: dict[int, int] = {}  # offset of a region by that of the call
            for entry in entries:
                offset = entry.frame.offset
                if offset in lost:
                    hangs_on[offset] = offset
                elif entry.base is None or readable.get(entry.base) == entry.base_crc:
                    readable[offset] = entry.frame.crc
                else:
                    region = hangs_on.get(entry.base, _region(lost, starts, entry.base))
                    if region is None:
                        orphans.append(entry.frame)
                        region = offset
                    else:
                        dependents[region] += 1
                    hangs_on[offset] = region
        return orphans, dependents


def _region(lost: dict[int, tuple[int, str]], starts: list[int], offset: int) -> int | None:
    """Return the offset of the lost region in which `offset` lies."""
    index = bisect_right(starts, offset) - 1
    return starts[index] if index >= 0 and offset < starts[index] + lost[starts[index]][0] else None


def _refuse_newer(path: Path, data: Data) -> None:
    header: Any = None
    with suppress(ValueError):
        header = from_json(data[:_FIRST_LINE].split(b"\n", 1)[0])
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        return
    version = header.get("version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise InputError(f"{path}: a call log of version {version}, this gyre reads {FORMAT_VERSION}; update gyre")
