"""Whether nodes see the same files: weights go from the core to engines through a folder."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gyre.atomic import disk_errors
from gyre.errors import InputError

_PATIENCE_S: Final = 5.0  # network file systems remember for a while what was not there
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file that every node must see under this path, with this content."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> SeenFile:
        """Take a file as this machine sees it.

        Raises:
            InputError: it cannot be read.
        """
        try:
            return cls(path, _digest(path))
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error

    def is_seen(self) -> bool:
        """Whether this machine sees it, now or in a moment. Blocks."""
        end_s = time.monotonic() + _PATIENCE_S
        while not self._is_seen_now():
            if time.monotonic() >= end_s:
                return False
            time.sleep(_LOOK_S)
        return True

    def _is_seen_now(self) -> bool:
        try:
            return _digest(self.path) == self.digest
        except OSError:
            return False


@contextmanager
def probe(folder: Path) -> Iterator[SeenFile]:
    """Put a file with something that was never there before into a folder, for as long as the context lasts.

    Raises:
        InputError: the system refuses to write there.
    """
    path = folder / f".seen-{secrets.token_hex(8)}"
    with disk_errors(path):
        path.write_bytes(secrets.token_bytes(32))
    try:
        yield SeenFile.of(path)
    finally:
        path.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
