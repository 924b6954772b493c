"""What a store holds at an instant, and how it comes to hold something else."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Self

from ...errors import InputError
from .catalogue import CATALOGUE_SCHEMA, Entry, catalogue_entries, catalogue_frame
from .checked_file import CheckedFile, MissingFileError, checked_bytes, read_table, write_checked, write_table
from .manifest import MANIFEST, Manifest, Part, number_of, orphans
from .part import Item, batches, write_part


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A file of entries, and the executions that have a row in it."""

    file: CheckedFile
    executions: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A store's manifest and catalogues, as they were written together."""

    folder: Path
    manifest: Manifest
    catalogues: tuple[Catalogue, ...]
    entries: Mapping[str, Entry]
    stamp: tuple[int, ...]  # of the manifest's file, taken before it was read

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the present state, whatever a writer does meanwhile.

        Raises:
            InputError: as `Manifest.read`, or a catalogue is damaged, missing or of another version of gyre.
        """
        while True:
            stamp = _stamp(folder)
            manifest = Manifest.read(folder)
            try:
                found = [catalogue_entries(read_table(folder, file, CATALOGUE_SCHEMA)) for file in manifest.catalogues]
            except MissingFileError:
                if Manifest.read(folder) == manifest:  # else a writer has replaced both since
                    raise
                continue
            entries = {execution: entry for each in found for execution, entry in each.items()}
            catalogues = map(Catalogue, manifest.catalogues, map(tuple, found))
            return cls(folder, manifest, tuple(catalogues), entries, stamp)

    def is_current(self) -> bool:
        """Whether no writer has replaced this state."""
        return self.stamp == _stamp(self.folder)

    def entry(self, execution: str) -> Entry:
        """Return an execution's entry.

        Raises:
            InputError: it is not in the store.
        """
        try:
            return self.entries[execution]
        except KeyError:
            raise InputError(f"{self.folder}: no execution {execution!r}; `executions()` lists those there") from None

    def by_part(self) -> Iterator[tuple[Part, list[Entry]]]:
        """Each part with its executions, in the order of their arrival."""
        entries: dict[int, list[Entry]] = {part.number: [] for part in self.manifest.parts}
        for entry in self.entries.values():
            entries[entry.part].append(entry)
        for part in self.manifest.parts:
            yield part, entries[part.number]

    def part(self, number: int) -> Part:
        """Return a part by its number."""
        parts = self.manifest.parts
        return parts[bisect_left(parts, number, key=attrgetter("number"))]


def _stamp(folder: Path) -> tuple[int, ...]:
    """What changes whenever the manifest is replaced; empty where there is none."""
    try:
        status = (folder / MANIFEST).stat()
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


@dataclass(slots=True)
class Change:
    """A new state of a store in the making: files are added beside those of the present one, which stays as it is.

    Use `changing`.
    """

    folder: Path
    entries: dict[str, Entry]
    catalogues: list[Catalogue]
    parts: list[Part]  # by number
    number: int  # of the next file
    changed: dict[str, None] = field(default_factory=dict)  # executions with another entry than before
    state: State | None = None  # the new one, once it is in force

    def put(self, entries: Iterable[Entry]) -> None:
        """Set entries of executions; one that is there keeps its place in the order."""
        new = {entry.record.execution: entry for entry in entries}
        self.entries |= new
        self.changed |= dict.fromkeys(new)

    def add(self, items: Iterable[Item]) -> None:
        """Write executions as new parts; what is there of the same name is replaced.

        Raises:
            InputError: the system refuses.
        """
        for batch in batches(items):
            part, entries = write_part(self.folder, self._take_number(), batch)
            self.parts.append(part)
            self.put(entries)

    def copy(self, folder: Path, part: Part, entries: Iterable[Entry]) -> None:
        """Take over a part of the store in `folder`, with those of its executions that `entries` names.

        Raises:
            DamagedFileError: a file of it is damaged.
            MissingFileError: a file of it is not there.
            InputError: the system refuses.
        """
        number = self._take_number()
        files = {
            table: write_checked(self.folder / f"{table}-{number:06d}.parquet", checked_bytes(folder, file))
            for table, file in (("nodes", part.nodes), ("calls", part.calls))
        }
        self.parts.append(part.model_copy(update={"number": number, **files}))
        self.put(replace(entry, part=number) for entry in entries)

    def join_catalogues(self) -> None:
        """Let the new state have one catalogue."""
        if len(self.catalogues) > 1 or self.changed:
            self.catalogues = []
            self.changed = dict.fromkeys(self.entries)

    def commit(self) -> Manifest:
        """Make this the store's state, in one instant, and return its manifest.

        Raises:
            InputError: the system refuses.
        """
        self._write_catalogue()
        used = {entry.part for entry in self.entries.values()}
        manifest = Manifest.model_construct(  # of models that are checked already: thousands of parts, at each change
            next_number=self.number,
            catalogues=tuple(catalogue.file for catalogue in self.catalogues),
            parts=tuple(part for part in self.parts if part.number in used),
        )
        manifest.write(self.folder)
        self.state = State(self.folder, manifest, tuple(self.catalogues), self.entries, _stamp(self.folder))
        return manifest

    def _write_catalogue(self) -> None:
        """Write the changed entries, together with those of the last catalogues as long as these are not far larger.

        So each catalogue is more than twice as large as the next: there are few, and an entry is written seldom again.
        """
        if not self.changed:
            return
        executions = self.changed
        while self.catalogues and len(self.catalogues[-1].executions) <= 2 * len(executions):
            executions = dict.fromkeys(self.catalogues.pop().executions) | executions
        frame = catalogue_frame(map(self.entries.__getitem__, executions))
        file = write_table(self.folder / f"executions-{self._take_number():06d}.parquet", frame)
        self.catalogues.append(Catalogue(file, tuple(executions)))

    def _take_number(self) -> int:
        self.number += 1
        return self.number - 1


@contextmanager
def changing(base: State) -> Iterator[Change]:
    """Give a change of `base` to fill, and commit it at the end, or not at all on an error. Hold the lock.

    Raises:
        InputError: the system refuses.
    """
    folder, manifest = base.folder, base.manifest
    change = Change(folder, dict(base.entries), list(base.catalogues), list(manifest.parts), manifest.next_number)
    try:
        yield change
        committed = change.commit()
    except BaseException:
        with suppress(InputError):
            remove(orphans(folder, Manifest.read(folder)))
        raise
    numbers = {part.number for part in committed.parts}
    dropped = [file for part in manifest.parts if part.number not in numbers for file in (part.nodes, part.calls)]
    dropped += [file for file in manifest.catalogues if file not in committed.catalogues]
    remove(folder / file.name for file in dropped)


@contextmanager
def replacing(folder: Path) -> Iterator[Change]:
    """Give a change to fill that takes the place of all that a store holds, even of one that cannot be read.

    Until the end the store stays as it is; on an error for good. Hold the lock.

    Raises:
        InputError: the system refuses.
    """
    first = 1 + max(map(number_of, folder.iterdir()), default=0)
    change = Change(folder, {}, [], [], first)
    try:
        yield change
        manifest = change.commit()
    except BaseException:
        remove(path for path in orphans(folder, _readable(folder)) if number_of(path) >= first)
        raise
    remove(orphans(folder, manifest))


def _readable(folder: Path) -> Manifest | None:
    try:
        return Manifest.read(folder)
    except InputError:
        return None


def remove(paths: Iterable[Path]) -> None:
    """Remove files of no state."""
    for path in paths:
        with suppress(OSError):  # it is in nobody's way, and the next writer tries again
            path.unlink()
