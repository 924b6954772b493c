"""Files that are either whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write `path` into an InputError of one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{path}: cannot be written ({reason}); free space there or give another folder") from error


def sync_folder(path: Path) -> None:
    """Make renames in folder `path` last through a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there; on any error nothing of it stays.

    Raises:
        InputError: the system refuses, for example because the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with disk_errors(path):
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text_atomic(path: Path, text: str) -> None:
    """Write `text` in UTF-8 to `path`, atomically; see `write_atomic`."""
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
