"""Which files of the artefacts rules change."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..state import MOST_ENTRIES
from .evaluator import Judged

MOST_NAMED: Final = 5
State = Mapping[str, tuple[int, int, int]]


class Changes:
    """Which files each rule of one evaluation changed, where each ends before the next begins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state: State = {}
        self.by_rule: dict[str, tuple[str, ...]] = {}

    async def begin(self) -> None:
        """Look at the folder before the first."""
        self._state = await asyncio.to_thread(_state, self._folder)

    async def take(self, judged: Judged) -> None:
        """Look at what a rule that has just ended left otherwise."""
        before, self._state = self._state, await asyncio.to_thread(_state, self._folder)
        changed = sorted(path for path, _ in before.items() ^ self._state.items())
        self.by_rule[judged.rule.name] = tuple(dict.fromkeys(changed))[:MOST_NAMED]


def _state(folder: Path) -> State:
    """Kind, size and time of change of everything below a folder, folders' own times left out."""
    found: dict[str, tuple[int, int, int]] = {}
    for below, folders, files in os.walk(folder):
        for path in (os.path.join(below, name) for name in (*folders, *files)):
            status = os.lstat(path)
            own = (0, 0) if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)
            found[os.path.relpath(path, folder)] = (status.st_mode, *own)
            if len(found) > MOST_ENTRIES:
                return found
    return found
