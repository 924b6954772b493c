"""A log's bytes, read piece by piece.

Nothing is mapped into memory: a file that someone cuts short while it is read gives short pieces, which checksums find,
where a mapping would end the process; and no log needs an open file while it is not read.
"""

from __future__ import annotations

import os
from typing import Final, Protocol

_WINDOW: Final = 1 << 12  # bytes: a frame's prefix and header, as a rule
_CHUNK: Final = 1 << 20  # most bytes that are searched at once


class Data(Protocol):
    """Bytes, or what can be read like them."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...

    def find(self, wanted: bytes, start: int, /) -> int: ...


class LogBytes:
    """The first `size` bytes of an open file. Slices are as of bytes, but shorter where the file has become so."""

    def __init__(self, descriptor: int, size: int) -> None:
        """Read from a descriptor that the caller closes."""
        self._descriptor = descriptor
        self._size = size
        self._at = 0  # where the window begins
        self._window = b""

    def __len__(self) -> int:
        """Return the size."""
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        """Return the bytes from `part.start` up to `part.stop`."""
        start, stop, _ = part.indices(self._size)
        if stop - start > _WINDOW:
            return self._read(start, stop)
        if not self._at <= start <= stop <= self._at + len(self._window):
            self._at, self._window = start, self._read(start, min(start + _WINDOW, self._size))
        return self._window[start - self._at : max(start, stop) - self._at]

    def _read(self, start: int, stop: int) -> bytes:
        data = os.pread(self._descriptor, stop - start, start)
        if len(data) == stop - start:
            return data
        parts = [data]  # the system returns at most 2 GB at once
        while parts[-1] and (start := start + len(parts[-1])) < stop:
            parts.append(os.pread(self._descriptor, stop - start, start))
        return b"".join(parts)

    def find(self, wanted: bytes, start: int, /) -> int:
        """Return the first place of `wanted` at or after `start`, -1 where there is none."""
        chunk = _WINDOW  # small at first: where one place follows another, little is read twice
        while start < self._size:
            found = self._read(start, min(start + chunk + len(wanted) - 1, self._size)).find(wanted)
            if found >= 0:
                return start + found
            start += chunk
            chunk = min(2 * chunk, _CHUNK)
        return -1
