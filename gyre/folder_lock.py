"""One process at a time writes into a folder, or to a file."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from .atomic import disk_errors, is_dead
from .errors import InputError

LOCK_NAME: Final = ".lock"
_PATIENCE_S: Final = 2.0
_LOOK_S: Final = 0.01


class InUseError(InputError):
    """Another process, or this one, holds the lock."""


class PathLock:
    """A file with the owner's process id, locked for as long as the owner lives.

    The system drops the lock when its process ends, however it ends; a file left by a dead process is taken over.
    """

    def __init__(self, path: Path, subject: Path, kind: str) -> None:
        """Take the lock: the file `path` stands for `subject`, a `kind` ("folder" or "file") in messages.

        Raises:
            InUseError: another process, or this one, holds it.
            InputError: the lock's file cannot be written.
        """
        self._path = path
        self._descriptor = -1
        give_up_s = time.monotonic() + _PATIENCE_S
        while self._descriptor < 0:
            with disk_errors(self._path):
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                os.close(descriptor)
                if owner.isdecimal() and is_dead(int(owner)) and time.monotonic() < give_up_s:
                    time.sleep(_LOOK_S)  # a child that the owner was starting when it was killed has it for a moment
                    continue
                raise InUseError(
                    f"{subject}: in use by process {owner}; wait until it ends, or give another {kind}"
                ) from error
            if self._is_current(descriptor):
                self._descriptor = descriptor
            else:  # its owner let it go between our opening and locking it
                os.close(descriptor)
        try:
            with disk_errors(self._path):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            self.release()
            raise

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let the folder go; a second call does nothing."""
        if self._descriptor >= 0:
            with suppress(OSError):  # a file left behind is taken over by the next owner
                self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        """Return the lock."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the folder go."""
        self.release()


class FolderLock(PathLock):
    """Locks a folder."""

    def __init__(self, folder: Path) -> None:
        """Take the lock.

        Raises:
            InUseError: another process, or this one, holds it.
            InputError: the lock's file cannot be written.
        """
        super().__init__(folder / LOCK_NAME, folder, "folder")


class FileLock(PathLock):
    """Locks one file of a folder, by a hidden file beside it."""

    def __init__(self, file: Path) -> None:
        """Take the lock.

        Raises:
            InUseError: another process, or this one, holds it.
            InputError: the lock's file cannot be written.
        """
        super().__init__(file.with_name(f".{file.name}{LOCK_NAME}"), file, "file")
