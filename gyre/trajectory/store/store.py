"""Executions' trees on disk: a folder of Parquet files that grows part by part and is whole at every instant."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Self

import polars as pl

from ...atomic import disk_errors
from ...errors import InputError
from ...folder_lock import LOCK_NAME, FolderLock
from ..record_fields import checked_execution
from .catalogue import Entry, catalogue_frame
from .checked_file import MissingFileError
from .manifest import MANIFEST, Part, is_left_by_create, orphans, require_own
from .part import PART_TOKENS, Item, PartTables, part_share
from .problem import Problem, file_problem
from .state import Change, State, changing, remove, replacing


class TrajectoryStore:
    """A folder of trees of executions with their records.

    Any number of processes may read while one writes. A writer that is killed leaves the state before its change;
    each change is there at once for all readers. Every table is checked as a whole before anything in it is believed.

    The tables (their columns: `NODE_SCHEMA`, `CALL_SCHEMA`, `CATALOGUE_SCHEMA`) are plain Parquet, open to other tools;
    `manifest.json` says which of the files count.
    """

    def __init__(self, path: Path, state: State) -> None:
        """Use `open` or `create`."""
        self.path = path
        self._state = state
        self._locked = False  # by `writing`

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make an empty store in a new or empty folder.

        Raises:
            InputError: something is there already, or the system refuses.
        """
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            if (path / MANIFEST).exists():
                raise InputError(f"{path}: a trajectory store already; open it, or give another folder")
            found = {file.name for file in path.iterdir() if not is_left_by_create(file.name)} - {LOCK_NAME}
        if found:
            raise InputError(f"{path}: holds {min(found)}; give a new or an empty folder")
        with FolderLock(path):
            if (path / MANIFEST).exists():
                raise InputError(f"{path}: another process has made a store there just now; open it")
            with replacing(path):
                pass
        return cls.open(path)

    @classmethod
    def replace(cls, path: Path, items: Iterable[Item]) -> Self:
        """Put executions in the place of all that a store holds, in one instant; until then it stays as it was.

        The store may be damaged, of another version of gyre, or without its manifest; where there is none, one is made.
        Files that are not a store's stay.

        Raises:
            InputError: another writer is at work, the folder is not a store's, or as `append`.
        """
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        with FolderLock(path):
            require_own(path)
            with replacing(path) as change:
                change.add(_checked(path, items, set()))
        return cls.open(path)

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a store, to read or to write.

        Raises:
            InputError: there is none, it was written by another version of gyre, or its manifest or catalogue is
                damaged.
        """
        return cls(Path(path), State.read(Path(path)))

    def __len__(self) -> int:
        """Number of executions."""
        return len(self._current().entries)

    def __contains__(self, execution: object) -> bool:
        """Whether an execution is there."""
        return execution in self._current().entries

    @property
    def size(self) -> int:
        """Bytes of all tables that count."""
        return sum(file.size for file in self._current().manifest.files())

    def executions(self) -> pl.DataFrame:
        """Return all executions in the order of their arrival, as a table of `CATALOGUE_SCHEMA`."""
        return catalogue_frame(self._current().entries.values())

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Return the executions of each group, groups and executions in the order of their arrival."""
        groups: dict[str, list[str]] = {}
        for entry in self._current().entries.values():
            groups.setdefault(entry.record.group, []).append(entry.record.execution)
        return {group: tuple(executions) for group, executions in groups.items()}

    def read(self, execution: str) -> Item:
        """Read an execution; of the others no more than those small ones that share its part.

        Raises:
            InputError: it is not there, or its part is damaged or missing.
        """
        return next(self.read_all([execution]))

    def read_group(self, group: str) -> Iterator[Item]:
        """Read a group's executions one after the other.

        Raises:
            InputError: there is no such group, or as `read`.
        """
        executions = self.groups().get(group)
        if executions is None:
            raise InputError(f"{self.path}: no group {group!r}; `groups()` lists those there")
        return self.read_all(executions)

    def read_all(self, executions: Sequence[str]) -> Iterator[Item]:
        """Read executions one after the other, in the order given; neighbours in a part are read at one time.

        Raises:
            InputError: as `read`.
        """
        position = 0
        while position < len(executions):
            state = self._current()
            entries = (state.entry(execution) for execution in islice(executions, position, None))
            number, run = next((number, list(run)) for number, run in groupby(entries, attrgetter("part")))
            try:
                tables = PartTables.read(self.path, state.part(number))
            except MissingFileError:
                if state.is_current():  # else a writer has put its executions elsewhere
                    raise
                continue
            yield from map(tables.item, run)
            position += len(run)

    def append(self, items: Iterable[Item], *, replace: bool = False) -> None:
        """Add executions, all or none; `items` is gone through once, and no more than a part of it is held.

        Raises:
            InputError: another writer is at work, an execution is there already (and `replace` is not given) or comes
                twice, record and tree are of different executions, or the system refuses. Nothing is added then.
        """
        with self._changing() as change:
            change.add(_checked(self.path, items, set() if replace else set(change.entries)))

    def set_scores(self, scores: Mapping[str, float | None]) -> None:
        """Set or take away (None) scores of executions; no part is written again.

        Raises:
            InputError: another writer is at work, an execution is not there, or the system refuses.
        """
        with self._changing() as change:
            for execution, score in scores.items():
                if execution not in change.entries:
                    raise InputError(f"{self.path}: no execution {execution!r} to score; append it first")
                entry = change.entries[execution]
                record = checked_execution(dataclasses.replace(entry.record, score=score))
                change.put([dataclasses.replace(entry, record=record)])

    def merge(self, others: Iterable[TrajectoryStore], *, replace: bool = False) -> None:
        """Add all executions of other stores, all or none, by copying their parts; the last wins with `replace`.

        Raises:
            InputError: as `append`, or a part of another store is damaged or missing.
        """
        with self._changing() as change:
            for other in others:
                state = other._current()
                both = change.entries.keys() & state.entries.keys()
                if both and not replace:
                    raise InputError(f"{other.path}: execution {min(both)!r} is in {self.path} too; use replace=True")
                for part, entries in state.by_part():
                    change.copy(other.path, part, entries)

    def compact(self) -> int:
        """Write small parts, and parts with replaced executions, together; return the bytes won.

        Raises:
            InputError: another writer is at work, a part to be written again is damaged, or the system refuses.
        """
        before = self.size
        with self._changing() as change:
            sparse = [(part, entries) for part, entries in self._state.by_part() if _is_sparse(part, entries)]
            if len(sparse) > 1 or any(part.executions > len(entries) for part, entries in sparse):
                change.add(item for part, entries in sparse for item in self._items(part, entries))
            change.join_catalogues()
        return before - self.size

    def verify(self) -> list[Problem]:
        """Read every file of the store; return what is damaged or missing, with the executions that cannot be read."""
        state = self._current()
        problems = [file_problem(self.path, each.file, each.executions) for each in state.catalogues]
        for part, entries in state.by_part():
            executions = tuple(entry.record.execution for entry in entries)
            problems += [file_problem(self.path, file, executions) for file in (part.nodes, part.calls)]
        return [problem for problem in problems if problem is not None]

    def orphans(self) -> list[Path]:
        """Files of a writer at work or of one that was killed; the next writer removes the latter."""
        return orphans(self.path, self._current().manifest)

    def _current(self) -> State:
        """Return the state as it is now, whoever made it."""
        if not self._state.is_current():
            self._state = State.read(self.path)
        return self._state

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers out of several changes, each of which is there at once, and stays when a later one fails.

        What a killed writer left is removed before.

        Raises:
            InputError: another writer is at work.
        """
        if self._locked:
            yield
            return
        with FolderLock(self.path):
            self._locked = True
            try:
                remove(orphans(self.path, self._current().manifest))
                yield
            finally:
                self._locked = False

    @contextmanager
    def _changing(self) -> Iterator[Change]:
        with self.writing():
            with changing(self._current()) as change:
                yield change
            self._state = change.state or self._state

    def _items(self, part: Part, entries: Sequence[Entry]) -> Iterator[Item]:
        return map(PartTables.read(self.path, part).item, entries)


def _checked(path: Path, items: Iterable[Item], known: set[str]) -> Iterator[Item]:
    """Pass items on; `known` are executions that may not come, and grows by those that came."""
    for record, tree in items:
        if record.execution != tree.execution:
            raise InputError(f"{path}: record of {record.execution!r} with the tree of {tree.execution!r}")
        if record.execution in known:
            raise InputError(f"{path}: execution {record.execution!r} is there already; use replace=True")
        known.add(record.execution)
        yield checked_execution(record), tree


def _is_sparse(part: Part, entries: Sequence[Entry]) -> bool:
    """Whether a part is worth writing again: small, or with rows of replaced executions."""
    size = sum(part_share(entry.unique_tokens) for entry in entries)
    return part.executions > len(entries) or size < PART_TOKENS // 2
