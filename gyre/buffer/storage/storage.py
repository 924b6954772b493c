"""Where the executions of groups wait for their updates."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Self

from ...atomic import disk_errors, sync_folder
from ...errors import InputError
from ...folder_lock import FolderLock
from ...trajectory.store.part import Item
from .folder import group_files, group_path, require_new_or_own
from .group_file import GroupProblem, append, cut, items, opened, survey
from .item_record import encode_item
from .memory import GroupMemory

Progress = Callable[[int, int], object]


class GroupStorage:
    """Executions with their trees, by group; this process is the only one that uses the folder.

    All is on disk, a file a group; up to `memory_bytes` of it is in memory too. When `put` returns, the operating
    system has it: it outlives this process, whatever ends it. After `flush` it outlives a power failure too. A released
    group's space is free at once. Apart from `memory_bytes`, a number or two a group are in memory, and while one
    is written or read the execution at work.

    Sizes are bytes on disk, which are those of a tree's arrays and texts. One thread at a time may use a storage.
    """

    def __init__(self, path: Path | str, memory_bytes: int = 0, *, on_progress: Progress | None = None) -> None:
        """Make the folder, or open it with all that was put there and not released.

        A torn end, as a killed writer or a power cut leaves it, was never acknowledged: it is cut off, and stands in
        `problems`. `on_progress(done, of)` is called with numbers of groups while they are looked through.

        Raises:
            InputError: another process uses the folder, it holds something else or was written by another version of
                gyre, or the system refuses.
        """
        self._path = Path(path)
        self._memory = GroupMemory(memory_bytes)
        self._sizes: dict[int, int] = {}
        self._disk_bytes = 0
        self._unflushed: set[int] = set()
        self._problems: list[GroupProblem] = []
        with disk_errors(self._path):
            self._path.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(self._path)
        try:
            require_new_or_own(self._path)
            self._recover(on_progress)
        except BaseException:
            self._lock.release()
            raise

    def _recover(self, on_progress: Progress | None) -> None:
        """Take over what is there, oldest group first."""
        files = sorted(group_files(self._path))
        for done, (group, path) in enumerate(files, start=1):
            with opened(path) as data:
                found = survey(path, group, data, cut_end=True)
            self._problems += found.damage
            if found.torn:
                self._problems.append(found.torn)
            if found.torn or not found.end:
                cut(path, found.end)
            if found.end:
                self._resize(group, found.end)
            if on_progress is not None:
                on_progress(done, len(files))

    @property
    def path(self) -> Path:
        """The folder."""
        return self._path

    @property
    def problems(self) -> tuple[GroupProblem, ...]:
        """What was wrong when the storage was opened. Torn ends were cut off; a group with damage cannot be read."""
        return tuple(self._problems)

    @property
    def memory_bytes(self) -> int:
        """Bytes that are in memory too."""
        return self._memory.size

    @property
    def disk_bytes(self) -> int:
        """Bytes of all files."""
        return self._disk_bytes

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._sizes)

    def __contains__(self, group: object) -> bool:
        """Whether there is something of a group."""
        return group in self._sizes

    def groups(self) -> tuple[int, ...]:
        """Return the groups of which there is something, by number."""
        return tuple(sorted(self._sizes))

    def size(self, group: int) -> int:
        """Return the bytes of a group, 0 where there is nothing of it."""
        return self._sizes.get(group, 0)

    def executions(self, group: int) -> tuple[str, ...]:
        """Return the executions of a group, in the order of their arrival.

        Raises:
            InputError: there is nothing of the group, or the system refuses to read it.
        """
        path = self._known(group)
        if (content := self._memory.get(group)) is not None:
            return tuple(survey(path, group, content).frames)
        with opened(path) as data:
            return tuple(survey(path, group, data).frames)

    def put(self, group: int, executions: Iterable[Item]) -> int:
        """Add executions to a group, one after the other; return the bytes added.

        One that is there already is replaced, though its space is free only with the group's. After an error those
        before the one at fault are there, and nothing of it.

        Raises:
            InputError: record and tree are of different executions, or the system refuses, as a full disk does.
        """
        path, added = group_path(self._path, group), 0
        for item in executions:
            frame = encode_item(group, item)
            before = self.size(group)
            append(path, frame, before)
            self._unflushed.add(group)
            self._memory.add(group, frame, before)
            self._resize(group, before + len(frame))
            added += len(frame)
        return added

    def get(self, group: int) -> Iterator[Item]:
        """Return a group's executions, one read after the other, each with arrays of its own.

        Raises:
            InputError: there is nothing of the group, or something in its file is damaged.
        """
        return self._items(group, self._known(group))

    def _items(self, group: int, path: Path) -> Iterator[Item]:
        if (content := self._memory.get(group)) is not None:
            yield from items(path, group, content)
            return
        with opened(path) as data:
            yield from items(path, group, data)

    def release(self, group: int) -> None:
        """Let go of a group, for good, and of its space; nothing happens where it is not there.

        Raises:
            InputError: the system refuses.
        """
        if group not in self._sizes:
            return
        path = group_path(self._path, group)
        with disk_errors(path):
            path.unlink(missing_ok=True)
        self._memory.discard(group)
        self._unflushed.discard(group)
        self._resize(group, 0)

    def keep_only(self, groups: Collection[int]) -> tuple[int, ...]:
        """Release all other groups, as after a restart those that were done with; return them."""
        others = tuple(group for group in self.groups() if group not in groups)
        for group in others:
            self.release(group)
        return others

    def flush(self) -> None:
        """Make all that was put outlive a power failure.

        Raises:
            InputError: the system refuses.
        """
        for group in sorted(self._unflushed):
            path = group_path(self._path, group)
            with disk_errors(path), path.open("rb") as file:
                os.fsync(file.fileno())
            self._unflushed.discard(group)
        with disk_errors(self._path):
            sync_folder(self._path)

    def close(self) -> None:
        """Let the folder go; a second call does nothing. Iterators of `get` are not to be used any more."""
        self._lock.release()

    def __enter__(self) -> Self:
        """Return the storage."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _known(self, group: int) -> Path:
        if group not in self._sizes:
            raise InputError(f"{self._path}: nothing of group {group}; `groups()` lists those there")
        return group_path(self._path, group)

    def _resize(self, group: int, size: int) -> None:
        self._disk_bytes += size - self.size(group)
        if size:
            self._sizes[group] = size
        else:
            del self._sizes[group]
