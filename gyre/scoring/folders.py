"""Copies and removes folders that are not trusted: however deep, whatever their permissions, no link followed."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .state import MOST_BYTES, MOST_ENTRIES, StoppedError, opened_file, unreadable

_CHUNK: Final = 2**20
_MOST_NAMED: Final = 5
_SHOWN_CHARS: Final = 60
_MOST_PATH_BYTES: Final = 4095  # PATH_MAX, less its end
_MOST_ROUNDS: Final = 10_000


@dataclass(slots=True)
class LeftOut:
    """What a copy lacks: what cannot be read, and what goes beyond its bounds."""

    number: int = 0  # entries; what lies below a folder is not counted
    first: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        """Count an entry."""
        self.number += 1
        if len(self.first) < _MOST_NAMED:
            self.first.append(path if len(path) <= _SHOWN_CHARS else path[:_SHOWN_CHARS] + "…")

    @property
    def sentence(self) -> str:
        """What to tell people; empty where nothing is missing."""
        if not self.number:
            return ""
        more = ", ..." if self.number > len(self.first) else ""
        entries = "1 entry" if self.number == 1 else f"{self.number:,} entries"
        return f"{entries} could not be read or went beyond the copy's bounds, and count as not there: " + (
            ", ".join(self.first) + more
        )


def copy_folder(
    source: Path,
    target: Path,
    stop: threading.Event,
    most_entries: int = MOST_ENTRIES,
    most_bytes: int = MOST_BYTES,
) -> LeftOut:
    """Copy a folder with times and permissions; links stay links, and pipes, sockets and devices are left out.

    So is what cannot be read, and what goes beyond `most_entries` or `most_bytes`: else an execution could bring it
    about that it is not judged. Its own user may write in every folder of the copy. Holes of files stay holes.

    Raises:
        OSError: `source` is not there, something breaks while it is read, or cannot be written.
        StoppedError: `stop` was set.
    """
    return _Copy(os.fspath(source), os.fspath(target), stop, most_entries, most_bytes).made()


class _Copy:
    """A copy in the making."""

    def __init__(self, source: str, target: str, stop: threading.Event, most_entries: int, most_bytes: int) -> None:
        self._source = source
        self._target = target
        self._stop = stop
        self._entries_left = most_entries
        self._bytes_left = most_bytes
        self._left_out = LeftOut()

    def made(self) -> LeftOut:
        waiting = [""]  # paths below the source
        while waiting:
            folder = waiting.pop()
            try:
                os.mkdir(os.path.join(self._target, folder))
                with os.scandir(os.path.join(self._source, folder)) as found:
                    # By name, so that the same is left out each time.
                    entries = sorted(found, key=lambda entry: entry.name, reverse=True)
                os.chmod(
                    os.path.join(self._target, folder),
                    stat.S_IMODE(os.stat(os.path.join(self._source, folder)).st_mode) | stat.S_IRWXU,
                )
            except OSError as error:
                self._leave_out(folder, error)
                continue
            waiting += [path for entry in reversed(entries) if (path := self._take(folder, entry))]
        return self._left_out

    def _take(self, folder: str, entry: os.DirEntry[str]) -> str:
        """Copy an entry; return its path where it is a folder that is still to be copied."""
        if self._stop.is_set():
            raise StoppedError
        path = os.path.join(folder, entry.name)
        if self._entries_left == 0:
            self._left_out.add(path)
            return ""
        self._entries_left -= 1
        if entry.is_dir(follow_symlinks=False):
            return path
        try:
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), os.path.join(self._target, path))
            elif entry.is_file(follow_symlinks=False):
                self._copy_file(entry.path, path)
        except OSError as error:
            self._leave_out(path, error)
        return ""

    def _copy_file(self, source: str, path: str) -> None:
        target = os.path.join(self._target, path)
        with opened_file(source) as read:
            size = os.fstat(read.fileno()).st_size
            if size > self._bytes_left:
                self._left_out.add(path)
                return
            self._bytes_left -= size
            with open(target, "xb") as out:
                while size > 0 and (chunk := read.read(min(_CHUNK, size))):  # no more than was there: it may grow
                    if self._stop.is_set():
                        raise StoppedError
                    size -= len(chunk)
                    if chunk.count(0) == len(chunk):
                        out.seek(len(chunk), os.SEEK_CUR)
                    else:
                        out.write(chunk)
                out.truncate()
        shutil.copystat(source, target, follow_symlinks=False)

    def _leave_out(self, path: str, error: OSError) -> None:
        if not unreadable(error) or (not path and error.errno != errno.EACCES):
            raise error
        self._left_out.add(path or ".")


def lay_over(overlay: Path, target: Path) -> None:
    """Put the files of `overlay` into `target`, in place of what is there; links in `target` are not followed.

    Raises:
        OSError: a file cannot be read or written.
    """
    for folder, entries in _walk(os.fspath(overlay)):
        below = target / os.path.relpath(folder, overlay)
        for entry in entries:
            there = below / entry.name
            if entry.is_dir(follow_symlinks=False):
                if there.is_symlink() or not there.is_dir():
                    there.unlink(missing_ok=True)
                    there.mkdir()
                continue
            if there.is_dir() and not there.is_symlink():
                remove_folder(there)
            there.unlink(missing_ok=True)
            shutil.copy2(entry.path, there)


def remove_folder(path: Path) -> None:
    """Remove a folder, also where something in it forbids that or lies too deep; what the system keeps stays."""
    for number in range(_MOST_ROUNDS):
        too_deep = _removed_but_for(path)
        moved = 0
        for index, folder in enumerate(too_deep):  # bring them up, where their paths are short again
            with suppress(OSError):
                os.rename(folder, path / f".gyre-{number}-{index}")
                moved += 1
        if not moved:
            return


def _removed_but_for(path: Path) -> list[str]:
    """Remove a folder; return the folders in it whose entries have paths that are too long for the system."""
    folders, too_deep = [], []
    for folder, entries in _walk(os.fspath(path), open_up=True):
        folders.append(folder)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    os.unlink(entry.path)
            elif len(os.fsencode(entry.path)) >= _MOST_PATH_BYTES:
                too_deep.append(folder)
                break
    for folder in reversed(folders):
        with suppress(OSError):
            os.rmdir(folder)
    return too_deep


def _walk(root: str, *, open_up: bool = False) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Folders from the top, each with its entries; with `open_up`, one that cannot be listed is made so first."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            if open_up and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                os.chmod(folder, stat.S_IRWXU)
            with os.scandir(folder) as found:
                entries = list(found)
        except OSError:
            if not open_up:
                raise
            entries = []
        yield folder, entries
        waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
