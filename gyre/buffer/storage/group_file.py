"""The file of one group: the frames of its executions, one after the other, in the order of their arrival."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...atomic import append_whole, disk_errors
from ...errors import InputError
from ...trajectory.call_log.frame import MAGIC, Frame, Gap, scan
from ...trajectory.call_log.log_bytes import Data, LogBytes
from ...trajectory.store.part import Item
from .item_record import DamagedRecordError, decode_item, frame_execution

_REMEDY: Final = "release the group, and roll it out again"


@dataclass(frozen=True, slots=True)
class GroupProblem:
    """Bytes of a group's file that cannot be read."""

    path: Path
    group: int
    offset: int  # bytes from the file's start
    size: int  # bytes
    what: str
    remedy: str

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.path}: {self.size} bytes from byte {self.offset}: {self.what}; {self.remedy}"


@dataclass(slots=True)
class Survey:
    """What a group's file holds, from the headers alone."""

    frames: dict[str, Frame] = field(default_factory=dict)  # by execution, of each the last one
    end: int = 0  # where the next frame goes
    torn: GroupProblem | None = None  # what follows it
    damage: list[GroupProblem] = field(default_factory=list)


def survey(path: Path, group: int, data: Data, *, cut_end: bool = False) -> Survey:
    """Walk over the headers of a group's file.

    With `cut_end`, what is not whole at the end is taken for what a writer left that was killed, or a power cut.
    """
    found = Survey()
    parts = list(scan(data))
    end = len(data)
    while cut_end and parts and _is_torn(parts[-1], data):
        end = parts.pop().offset
    if end < len(data):
        what, remedy = "a torn end, as an interrupted writer leaves it", "it is cut off; all before it is read"
        found.torn = GroupProblem(path, group, end, len(data) - end, what, remedy)
    found.end = end
    for part in parts:
        if isinstance(part, Gap):
            found.damage.append(GroupProblem(path, group, part.offset, part.size, "damaged, not a record", _REMEDY))
            continue
        try:
            found.frames[frame_execution(part, data, group)] = part
        except DamagedRecordError as error:
            size, what = part.end - part.offset, f"not of this group ({error})"
            found.damage.append(GroupProblem(path, group, part.offset, size, what, _REMEDY))
    return found


def _is_torn(part: Frame | Gap, data: Data) -> bool:
    """Whether a last part is the begin of a record, or space for one that was never filled."""
    if isinstance(part, Frame):
        return part.payload(data) is None
    begin = data[part.offset : part.offset + len(MAGIC)]
    return MAGIC.startswith(begin) or not any(begin)


def items(path: Path, group: int, data: Data) -> Iterator[Item]:
    """Yield the executions of a group's file.

    Raises:
        InputError: something in it is damaged; a group with a member that is lost would be trained on a wrong baseline.
    """
    found = survey(path, group, data)
    for problem in found.damage:
        raise InputError(f"{path}: damaged at byte {problem.offset}; {_REMEDY}")
    for execution, frame in found.frames.items():
        try:
            yield decode_item(frame, data)
        except DamagedRecordError as error:
            raise InputError(f"{path}: execution {execution!r} is damaged ({error}); {_REMEDY}") from error


def append(path: Path, frames: bytes, end: int) -> None:
    """Write frames at the `end` of a group's file, whole or not at all; 0: there is no file yet.

    Raises:
        InputError: the system refuses.
    """
    with disk_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if end == 0 else 0), 0o644)
        try:
            append_whole(descriptor, frames, end)
        except BaseException:
            if end == 0:
                with suppress(OSError):
                    path.unlink()
            raise
        finally:
            os.close(descriptor)


def cut(path: Path, end: int) -> None:
    """Cut a group's file off at `end`; remove it where nothing is left.

    Raises:
        InputError: the system refuses.
    """
    with disk_errors(path):
        if end:
            os.truncate(path, end)
        else:
            path.unlink()


@contextmanager
def opened(path: Path) -> Iterator[LogBytes]:
    """Give a file's bytes, to be read piece by piece.

    Raises:
        InputError: the system refuses.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from error
    try:
        yield LogBytes(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
