"""Copies and removes folders that are not trusted: however deep, whatever their permissions, no link followed."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .state import StoppedError


def copy_folder(source: Path, target: Path, stop: threading.Event) -> None:
    """Copy a folder with times and permissions; links stay links, and pipes, sockets and devices are left out.

    Its own user may write in every folder of the copy.

    Raises:
        OSError: something cannot be read or written.
        StoppedError: `stop` was set.
    """
    for folder, entries in _walk(os.fspath(source)):
        below = target / os.path.relpath(folder, source)
        below.mkdir()
        below.chmod(stat.S_IMODE(os.stat(folder).st_mode) | stat.S_IRWXU)
        for entry in entries:
            if stop.is_set():
                raise StoppedError
            if entry.is_symlink() or entry.is_file(follow_symlinks=False):
                shutil.copy2(entry.path, below / entry.name, follow_symlinks=False)


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
    """Remove a folder, also where something in it forbids that; what the system keeps stays."""
    folders = []
    with suppress(OSError):
        for folder, entries in _walk(os.fspath(path), open_up=True):
            folders.append(folder)
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    with suppress(OSError):
                        os.unlink(entry.path)
    for folder in reversed(folders):
        with suppress(OSError):
            os.rmdir(folder)


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
