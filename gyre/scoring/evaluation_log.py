"""The durable record of evaluations: what was judged, by what, and what came of it.

A file of JSON lines, written line by line as evaluations come in and readable at any moment. A line is

    {"crc32":"0a1b2c3d","evaluation":{"version":1,"key":{...},"evaluation":{...},...}}

where the checksum is of the bytes of the inner object. A line that a killed process left half-written is at the end; it
is cut off when the file is opened again. Any other line whose checksum does not fit is left alone, and told of.
"""

from __future__ import annotations

import errno
import os
import threading
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from pydantic_core import from_json, to_json

from ..atomic import disk_errors
from ..errors import InputError
from ..folder_lock import FileLock
from .evaluation import Evaluation
from .result import evaluation_of

LOG_VERSION: Final = 1
_START: Final = b'{"crc32":"'
_MIDDLE: Final = b'","evaluation":'
_INNER: Final = len(_START) + 8 + len(_MIDDLE)


@dataclass(frozen=True, slots=True)
class EvaluationKey:
    """What makes two evaluations the same: one is not made again."""

    execution: str
    attempt: int
    state: str  # name of the artefacts' content
    known: str  # name of what else the evaluator was told of the execution, but for the version
    evaluator: str  # name of what judged


@dataclass(frozen=True, slots=True)
class Recorded:
    """An evaluation that was made."""

    key: EvaluationKey
    evaluation: Evaluation
    outcome: str = ""  # how the execution had ended
    group: str = ""
    task: str = ""


class EvaluationLog:
    """An open record, of which this process is the only writer. Its methods may be called from any thread."""

    def __init__(self, path: Path, *, anew: bool = False) -> None:
        """Open a record, or begin one; `anew` drops what is there, whatever it is.

        Raises:
            InputError: the file is no such record, or of a newer version, another process has it open, or the system
                refuses.
        """
        self.path = path
        self.problems: list[str] = []  # lines that were lost, for people
        self._mutex = threading.Lock()
        self._places: dict[EvaluationKey, tuple[int, int]] = {}  # offset and length of a line
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(path)
        try:
            with disk_errors(path):
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                if anew:
                    os.ftruncate(self._file, 0)
                self._read()
            except BaseException:
                os.close(self._file)
                raise
        except BaseException:
            self._lock.release()
            raise

    def __len__(self) -> int:
        """Return how many evaluations it holds."""
        return len(self._places)

    def find(self, key: EvaluationKey) -> Evaluation | None:
        """Return the evaluation with this key, None where there is none."""
        with self._mutex:
            place = self._places.get(key)
            if place is None:
                return None
            offset, length = place
            recorded = _recorded(os.pread(self._file, length, offset))
        return recorded.evaluation if isinstance(recorded, Recorded) else None

    def append(self, recorded: Recorded) -> None:
        """Add an evaluation; when this returns it outlives the process, and the machine's power.

        Raises:
            OSError: the system refuses; the record is as it was, or has a line that power may take away.
        """
        line = _line(recorded)
        with self._mutex:
            offset = os.fstat(self._file).st_size
            try:
                written = os.write(self._file, line)
                if written < len(line):
                    raise OSError(errno.ENOSPC, "no space left on the disk", str(self.path))
            except OSError:
                os.ftruncate(self._file, offset)
                raise
            self._places[recorded.key] = (offset, len(line))
        os.fsync(self._file)  # not under the lock: nobody who looks something up waits for the disk

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._mutex:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
                self._lock.release()

    def __enter__(self) -> Self:
        """Return the record."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _read(self) -> None:
        offset = 0
        with open(os.dup(self._file), "rb") as file:
            file.seek(0)
            for number, line in enumerate(file, start=1):
                recorded = _checked_line(self.path, number, line)
                if isinstance(recorded, Recorded):
                    self._places[recorded.key] = (offset, len(line))
                    offset += len(line)
                    continue
                self.problems.append(f"{self.path}: line {number}: {recorded}")
                if not line.endswith(b"\n"):
                    with disk_errors(self.path):
                        os.ftruncate(self._file, offset)
                    break
                offset += len(line)


def read_evaluations(path: Path) -> Iterator[Recorded | str]:
    """Read a record, also one that another process writes: evaluations in order, and a text for each line lost.

    Raises:
        InputError: the file cannot be read, is no such record, or of a newer version.
    """
    try:
        with path.open("rb") as file:
            yield from _lines(path, file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); give a record of evaluations") from error


def _lines(path: Path, file: BinaryIO) -> Iterator[Recorded | str]:
    for number, line in enumerate(file, start=1):
        recorded = _checked_line(path, number, line)
        yield recorded if isinstance(recorded, Recorded) else f"{path}: line {number}: {recorded}"


def _line(recorded: Recorded) -> bytes:
    inner = to_json({"version": LOG_VERSION, **asdict(recorded)})
    return b"%s%08x%s%s}\n" % (_START, zlib.crc32(inner), _MIDDLE, inner)


def _checked_line(path: Path, number: int, line: bytes) -> Recorded | str:
    """Return what a line holds, or what is wrong with it; a file that begins otherwise is somebody else's."""
    if number == 1 and not (line.startswith(_START) or (_START.startswith(line) and not line.endswith(b"\n"))):
        raise InputError(f"{path}: no record of evaluations; give another file")
    recorded = _recorded(line)
    if isinstance(recorded, int):
        raise InputError(f"{path}: line {number}: version {recorded}, this gyre reads {LOG_VERSION}; use a newer gyre")
    return recorded


def _recorded(line: bytes) -> Recorded | str | int:
    """Return what a line holds, what is wrong with it, or its version where that is another."""
    if not line.endswith(b"}\n"):
        return "cut off; that evaluation is lost and will be made again"
    inner = line[_INNER:-2]
    if line[: len(_START)] != _START or line[_INNER - len(_MIDDLE) : _INNER] != _MIDDLE or not _fits(line, inner):
        return "damaged; that evaluation is lost and will be made again"
    try:
        values = from_json(inner)
        version = values.pop("version")
        return _of_values(values) if version == LOG_VERSION else int(version)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return f"not an evaluation ({type(error).__name__}: {error})"


def _fits(line: bytes, inner: bytes) -> bool:
    return line[len(_START) : len(_START) + 8] == b"%08x" % zlib.crc32(inner)


def _of_values(values: dict[str, Any]) -> Recorded:
    said = values.pop("evaluation")
    seconds = said.pop("seconds")
    evaluation = evaluation_of(said)
    key = EvaluationKey(**values.pop("key"))
    return Recorded(key, Evaluation(**{**_fields(evaluation), "seconds": seconds}), **values)


def _fields(evaluation: Evaluation) -> dict[str, Any]:
    return {name: getattr(evaluation, name) for name in Evaluation.__dataclass_fields__}
