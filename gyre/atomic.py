"""Files and folders that are either whole or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import InputError


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
        with suppress(OSError):  # where even this is refused, the error before says why
            temporary.unlink()


def write_text_atomic(path: Path, text: str) -> None:
    """Write `text` in UTF-8 to `path`, atomically; see `write_atomic`."""
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_folder_atomic(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` fill a temporary folder beside `path`, then move it there; an older folder there is replaced whole.

    Raises:
        InputError: the system refuses.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with disk_errors(path):
            temporary.mkdir(parents=True)
            fill(temporary)
            _replace_folder(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace_folder(new: Path, target: Path) -> None:
    """Rename `new` to `target`; an older folder there is moved aside first, so that no mixture is ever seen."""
    if not target.exists():
        new.rename(target)
        return
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    target.rename(old)
    try:
        new.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
