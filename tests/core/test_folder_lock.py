"""Who may write into a folder after its owner was killed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gyre.errors import InputError
from gyre.folder_lock import LOCK_NAME, FolderLock


def dead_process() -> int:
    """The id of a process that was there a moment ago."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def held_by(folder: Path, owner: int) -> int:
    """Hold the lock in the name of `owner`, as a child does that the owner had begun to start; return what holds it."""
    descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    os.pwrite(descriptor, f"{owner}\n".encode(), 0)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def test_a_child_that_a_killed_owner_was_starting_is_waited_for(tmp_path: Path) -> None:
    descriptor = held_by(tmp_path, dead_process())

    def let_go() -> None:
        time.sleep(0.1)
        os.close(descriptor)

    thread = threading.Thread(target=let_go)
    thread.start()
    with FolderLock(tmp_path):
        thread.join()


def test_a_living_owner_is_told_of_at_once(tmp_path: Path) -> None:
    descriptor = held_by(tmp_path, os.getpid())
    try:
        with pytest.raises(InputError, match=f"in use by process {os.getpid()}"):
            FolderLock(tmp_path)
    finally:
        os.close(descriptor)


def test_a_dead_owner_whose_lock_stays_is_told_of_in_the_end(tmp_path: Path) -> None:
    """As on a folder that another machine has: the owner's id says nothing here."""
    owner = dead_process()
    descriptor = held_by(tmp_path, owner)
    try:
        with pytest.raises(InputError, match=f"in use by process {owner}"):
            FolderLock(tmp_path)
    finally:
        os.close(descriptor)
