"""Files and folders that are either whole or not there."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .errors import InputError

_HERE: Final = -100  # AT_FDCWD: paths count from the working folder
_EXCHANGE: Final = 2  # RENAME_EXCHANGE, Linux 3.15


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

    Where `path` is a link, the file that it leads to is written. What killed processes left of `path` is removed.

    Raises:
        InputError: the system refuses, for example because the disk is full.
    """
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    temporary = _temporary(target)
    try:
        with disk_errors(path):
            _remove_remains(target)
            with _held(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)):
                write(temporary)
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
                temporary.replace(target)
            sync_folder(target.parent)
    finally:
        with suppress(OSError):  # where even this is refused, the error before says why
            temporary.unlink()


def append_whole(descriptor: int, content: bytes, end: int) -> None:
    """Write `content` at `end`, where a file ends, whole or not at all.

    Raises:
        OSError: the system refuses, for example because the disk is full.
    """
    rest, offset = memoryview(content), end
    try:
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written
    except BaseException:
        with suppress(OSError):  # where even this is refused, a reader finds and reports the torn end
            os.ftruncate(descriptor, end)
        raise


def write_text_atomic(path: Path, text: str) -> None:
    """Write `text` in UTF-8 to `path`, atomically; see `write_atomic`."""
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_folder_atomic(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` fill a temporary folder beside `path`, then move it there; an older folder there is replaced whole.

    What killed processes left of `path` is removed.

    Raises:
        InputError: the system refuses.
    """
    temporary = _temporary(path)
    try:
        with disk_errors(path):
            if path.parent.is_dir():
                _remove_remains(path)
            temporary.mkdir(parents=True)
            with _held(os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)):
                fill(temporary)
                _replace_folder(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace_folder(new: Path, target: Path) -> None:
    """Put `new` in the place of `target`; what stood there is then in `new`, to be removed.

    Where the system can exchange them in one step, a process that is killed leaves one or the other. Elsewhere the old
    one is moved aside first, so that no mixture is ever seen.
    """
    if not target.exists():
        new.rename(target)
        return
    if _exchanged(new, target):
        return
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    target.rename(old)
    try:
        new.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchanged(first: Path, second: Path) -> bool:
    """Swap two paths in one step; False where the system or the file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    done: int = renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE)
    return done == 0


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextmanager
def _held(descriptor: int) -> Iterator[None]:
    """Lock an open temporary, so that whoever would clear it away sees that its process lives, and close it."""
    try:
        with suppress(OSError):  # a file system without locks: the process id must do
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove_remains(path: Path) -> None:
    """Remove temporaries of `path` whose process is dead: killed, it could not do so itself.

    Its id is free on this machine, and nobody holds the lock, here or on another machine that shares the folder.
    """
    name = re.compile(re.escape(f".{path.name}.") + r"([0-9]{1,9})\.tmp")
    with os.scandir(path.parent) as entries:
        left = [Path(entry.path) for entry in entries if (ours := name.fullmatch(entry.name)) and is_dead(int(ours[1]))]
    for remains in left:
        with suppress(OSError):  # in use, another's, or gone: not ours to remove
            descriptor = os.open(remains, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(remains) if remains.is_dir() else remains.unlink()
            finally:
                os.close(descriptor)


def is_dead(process: int) -> bool:
    """Return whether no process of this machine has this id."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's
        return False
    return False
