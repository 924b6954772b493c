"""Names the state of a folder by its content, so that people can tell what was judged."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

# As much as can be read and copied within the minutes that an attempt has for it: beyond that an execution could bring
# it about that it is not judged.
MOST_ENTRIES: Final = 200_000
MOST_BYTES: Final = 16 * 2**30
_CHUNK: Final = 2**20


class StoppedError(Exception):
    """Nobody wants the result any more."""


async def folder_reference(folder: Path, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES) -> str:
    """Return the name of a folder's state, without blocking the event loop.

    It is `sha256:` and a SHA-256 over every entry below the folder, in order of their paths: kind, permissions, path,
    and a file's content or where a link leads. Pipes, sockets and devices count by their number only. A folder beyond
    the bounds is `sha256-partial:`, over its first `most_entries` and the content of `most_bytes`, sizes of the rest.
    So is one of which something may not be read: that is named as such, with its path.

    Raises:
        OSError: the folder is not there, or breaks while it is read.
    """
    stop = threading.Event()
    try:
        return await asyncio.to_thread(folder_digest, folder, most_entries, most_bytes, stop)
    finally:
        stop.set()


def folder_digest(
    folder: Path, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES, stop: threading.Event | None = None
) -> str:
    """Do what `folder_reference` describes, in this thread, until `stop` is set.

    Raises:
        OSError: the folder is not there, or breaks while it is read.
        StoppedError: `stop` was set.
    """
    return _Digest(most_entries, most_bytes, stop or threading.Event()).of(folder)


def opened_file(path: str | bytes) -> BinaryIO:
    """Open a regular file that is not trusted, for reading.

    Raises:
        OSError: it is a link or no regular file, or cannot be opened.
    """
    # Should it have become a pipe meanwhile, opening and reading must not wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, "no regular file", path)
    return os.fdopen(descriptor, "rb")


def unreadable(error: OSError) -> bool:
    """Whether a folder's maker can bring it about that reading in it fails so, in place of the machine."""
    return error.errno in _OF_THE_FOLDER


_OF_THE_FOLDER: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.ENAMETOOLONG,
        errno.ELOOP,  # a file that became a link while it was read
        errno.ENXIO,  # or a pipe
        errno.ENOENT,  # or went away
        errno.ENOTDIR,
    }
)


class _Digest:
    """A digest in the making."""

    def __init__(self, most_entries: int, most_bytes: int, stop: threading.Event) -> None:
        self._hash = hashlib.sha256()
        self._entries_left = most_entries
        self._bytes_left = most_bytes
        self._stop = stop
        self._special = 0
        self._partial = False

    def of(self, folder: Path) -> str:
        """Return the name of the folder's state."""
        root = os.fsencode(folder)
        for path, status in self._walk(root):
            try:
                self._add(os.path.join(root, path), path, status)
            except OSError as error:
                self._note_unreadable(path, error)
        self._hash.update(b"special %d" % self._special)
        return f"sha256{'-partial' if self._partial else ''}:{self._hash.hexdigest()}"

    def _walk(self, root: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        """Entries below the root, by name; links are not followed."""
        waiting = self._entries(root, b"")
        while waiting:
            if self._stop.is_set():
                raise StoppedError
            if self._entries_left == 0:
                self._partial = True
                return
            self._entries_left -= 1
            path = waiting.pop()
            try:
                status = os.lstat(os.path.join(root, path))
            except OSError as error:
                self._note_unreadable(path, error)
                continue
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                waiting += self._entries(root, path)

    def _entries(self, root: bytes, below: bytes) -> list[bytes]:
        """Paths of what lies in a folder, last name first."""
        try:
            names = os.listdir(os.path.join(root, below))
        except OSError as error:
            if not below and error.errno != errno.EACCES:
                raise
            self._note_unreadable(below, error)
            return []
        return [os.path.join(below, name) for name in sorted(names, reverse=True)]

    def _note_unreadable(self, path: bytes, error: OSError) -> None:
        """Take what may not be read by its path; what breaks in another way is for the caller."""
        if not unreadable(error):
            raise error
        self._partial = True
        self._entry(b"unreadable", 0, path, b"")

    def _add(self, where: bytes, path: bytes, status: os.stat_result) -> None:
        mode = status.st_mode
        if stat.S_ISLNK(mode):
            self._entry(b"link", 0, path, os.readlink(where))
        elif stat.S_ISDIR(mode):
            self._entry(b"folder", mode, path, b"")
        elif stat.S_ISREG(mode):
            self._entry(b"file", mode, path, self._content(where, status.st_size))
        else:
            self._special += 1

    def _entry(self, kind: bytes, mode: int, path: bytes, content: bytes) -> None:
        self._hash.update(b"%s %o %d %d " % (kind, stat.S_IMODE(mode), len(path), len(content)) + path + content)

    def _content(self, where: bytes, size: int) -> bytes:
        """A file's own digest, so that no file's content can look like two entries."""
        if size > self._bytes_left:
            self._partial = True
            return b"size %d" % size
        self._bytes_left -= size
        own = hashlib.sha256()
        with opened_file(where) as file:
            while chunk := file.read(_CHUNK):
                if self._stop.is_set():
                    raise StoppedError
                own.update(chunk)
        return own.digest()
