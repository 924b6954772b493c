"""Processes that are found by a mark in their environment, where their parent can no longer tell of them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_MOST_ROUNDS: Final = 50  # each kills what those before it started meanwhile


def kill_marked(*marks: str) -> int:
    """Kill every process of this user that was started with one of the variables `marks`, NAME=VALUE; return how many.

    A process that cleared its environment before it started another program is not found. Without /proc none is.
    """
    killed: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        found = marked(*marks)
        if not found:
            break
        for process in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        killed |= set(found)
    return len(killed)


def marked(*marks: str) -> list[int]:
    """Return the processes that were started with one of the variables `marks`, except those that have ended."""
    found, wanted = [], frozenset(mark.encode() for mark in marks)
    with suppress(OSError):
        for name in filter(str.isdecimal, os.listdir(_PROC)):
            with suppress(OSError):  # another user's, or gone
                if not wanted.isdisjoint(_PROC.joinpath(name, "environ").read_bytes().split(b"\0")):
                    found.append(int(name))
    return found
