"""What an execution left, read without being led out of its folder or held up by what lies there."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from ..state import MOST_ENTRIES
from .verdict import BrokenRuleError, FailedCheckError

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Artefacts:
    """A folder that is not trusted. Paths are relative to it; links may lead around in it, not out of it.

    Every method raises `error` where what it finds is not as it must be, and TimeoutError after `until_s` (by
    `time.monotonic`).
    """

    root: Path  # resolved
    until_s: float
    error: type[Exception] = FailedCheckError  # whose fault it is: the execution's, or the rule's

    @classmethod
    def of(cls, folder: Path, seconds: float) -> Artefacts:
        """Return what an execution left in `folder`, to be looked at for `seconds` at most."""
        return cls(folder.resolve(), time.monotonic() + seconds)

    @classmethod
    def of_the_rules(cls, folder: Path, seconds: float) -> Artefacts:
        """Return what belongs to the rules, in `folder`, to be looked at for `seconds` at most."""
        return cls(folder.resolve(), time.monotonic() + seconds, BrokenRuleError)

    def find(self, path: str) -> Path | None:
        """Return where a regular file or a folder is, None where there is neither."""
        found = self._resolved(path)
        try:
            mode = found.stat().st_mode
        except (OSError, ValueError):
            return None
        return found if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else None

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        with self.opened(path) as file:
            return os.fstat(file.fileno()).st_size

    def read(self, path: str, most_bytes: int) -> bytes:
        """Return what a file holds; one of more than `most_bytes` is refused."""
        with self.opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = b"" if size > most_bytes else file.read(most_bytes + 1)
            if max(size, len(content)) > most_bytes:
                raise self.error(f"{path}: larger than {most_bytes:,} bytes")
            return content

    def head(self, path: str, size: int) -> bytes:
        """Return the first `size` bytes of a file."""
        with self.opened(path) as file:
            return file.read(size)

    def copy(self, path: str, target: Path, most_bytes: int) -> None:
        """Copy a file of `most_bytes` or fewer to `target`."""
        with self.opened(path) as file, target.open("xb") as out:
            copied = 0
            for chunk in self._chunks(file):
                copied += len(chunk)
                if copied > most_bytes:
                    raise self.error(f"{path}: larger than {most_bytes:,} bytes")
                out.write(chunk)

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of a file, in hexadecimal."""
        digest = hashlib.sha256()
        with self.opened(path) as file:
            for chunk in self._chunks(file):
                digest.update(chunk)
        return digest.hexdigest()

    def matching(self, pattern: str) -> list[str]:
        """Return the regular files that a glob matches, sorted; `**` stands for any folders. Links are not followed."""
        wanted = PurePosixPath(pattern).parts
        return sorted(path for path in self._files() if _matches(tuple(path.split("/")), wanted))

    @contextmanager
    def opened(self, path: str) -> Iterator[BinaryIO]:
        """Open a regular file for reading. A pipe or a device never is: opening one may wait, or do something."""
        found = self.find(path)
        if found is None:
            raise self.error(f"{path}: no such file")
        try:
            descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise self.error(f"{path}: cannot be opened ({error.strerror})") from error
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self.error(f"{path}: not a regular file")
            self._check_place(descriptor, path)
            yield file

    def _resolved(self, path: str) -> Path:
        if not path or "\0" in path or path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise self.error(f"{path!r}: leads out of the artefacts")
        try:
            found = (self.root / path).resolve()
        except (OSError, RuntimeError) as error:  # a circle of links
            raise self.error(f"{path}: cannot be followed ({error})") from error
        if not found.is_relative_to(self.root):
            raise self.error(f"{path}: a link that leads out of the artefacts")
        return found

    def _check_place(self, descriptor: int, path: str) -> None:
        """Look where the open file is: a folder on the way may have become a link since it was resolved."""
        named = Path(f"/proc/self/fd/{descriptor}")
        if named.parent.is_dir() and not named.readlink().is_relative_to(self.root):
            raise self.error(f"{path}: a link that leads out of the artefacts")

    def _chunks(self, file: BinaryIO) -> Iterator[bytes]:
        while chunk := file.read(_CHUNK):
            self._check_time()
            yield chunk

    def _files(self) -> Iterator[str]:
        """Paths of the regular files below the root, links left out."""
        folders, seen = [""], 0
        while folders:
            below = folders.pop()
            self._check_time()
            for entry in self._entries(below):
                seen += 1
                if seen > MOST_ENTRIES:
                    raise self.error(f"more than {MOST_ENTRIES:,} files")
                path = f"{below}/{entry.name}" if below else entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                elif entry.is_file(follow_symlinks=False):
                    yield path

    def _entries(self, below: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / below) as entries:
                yield from entries
        except OSError as error:
            raise self.error(f"{below or '.'}: cannot be listed ({error.strerror})") from error

    def _check_time(self) -> None:
        if time.monotonic() > self.until_s:
            raise TimeoutError


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
