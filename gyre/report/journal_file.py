"""The journal as a file: appended in whole lines, read with an eye for a torn end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final, Self

from ..atomic import disk_errors
from ..errors import InputError
from ..journal import Entry, Header, JournalError, parse, to_line

_BLOCK_LINES: Final = 512


class JournalWriter:
    """Appends entries to a journal file. Lines are written in blocks, each by one call: a kill loses a block at most.

    `flush` hands what is buffered to the system; call it where a line must not be lost with the process.
    """

    def __init__(self, path: Path, header: Header, *, append: bool = False) -> None:
        """Begin a journal, or with `append` go on with the one that is there; a torn last line of it is cut off.

        Raises:
            InputError: the file cannot be written.
        """
        self.path = path
        self._lines: list[str] = []
        with disk_errors(path):
            keep = append and path.exists() and whole_length(path) > 0
            self._file = FileIO(path, "ab" if keep else "wb")
            if keep:
                self._file.truncate(whole_length(path))
            else:
                self._lines.append(header.to_line())
        self.flush()

    def append(self, entry: Entry) -> None:
        """Add one entry.

        Raises:
            InputError: the disk is full.
        """
        self._lines.append(to_line(entry))
        if len(self._lines) >= _BLOCK_LINES:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        if not self._lines:
            return
        block = memoryview(("\n".join(self._lines) + "\n").encode())
        self._lines.clear()
        with disk_errors(self.path):
            while block:
                block = block[self._file.write(block) or 0 :]

    def sync(self) -> None:
        """Make what was flushed outlive a power failure; it may be called in another thread than the rest."""
        with disk_errors(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write what is buffered and make it last; a second call does nothing."""
        if self._file.closed:
            return
        try:
            self.flush()
            self.sync()
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def whole_length(path: Path) -> int:
    """Return the length in bytes of a file's whole lines."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position > 0:
            start = max(0, position - 65536)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            position = start
    return 0


class JournalReader:
    """Iterates over a journal file. After that `torn_line` is the number of a last line that was cut off, or None."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn_line: int | None = None

    def __iter__(self) -> Iterator[Header | Entry]:
        """Yield the header, then the entries.

        Raises:
            InputError: there is no such file, it has no whole line, or a line other than a torn last one is no entry.
        """
        try:
            if not whole_length(self.path):
                raise InputError(f"{self.path}: an empty journal; run again")
            yield from parse(self._lines())
        except (JournalError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: {error}; restore the file or run again") from error
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be read ({error.strerror}); give a results folder of gyre"
            ) from error

    def _lines(self) -> Iterator[str]:
        with self.path.open("rb") as file:  # as bytes: a cut can go through a letter
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    self.torn_line = number
                    return
                yield line.decode()
