"""What a store holds at an instant, and how it comes to hold something else."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from ...errors import InputError
from ...folder_lock import FolderLock
from .catalogue import Entry, catalogue_entries, catalogue_frame
from .checked_file import MissingFileError, checked_bytes, read_table, write_checked, write_table
from .manifest import MANIFEST, Manifest, Part, orphans
from .part import Item, batches, write_part


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A store's manifest and catalogue, as they were written together."""

    folder: Path
    manifest: Manifest
    entries: dict[str, Entry]
    stamp: tuple[int, ...]  # of the manifest's file, taken before it was read

    @classmethod
    def read(cls, folder: Path) -> State:
        """Read the present state, whatever a writer does meanwhile.

        Raises:
            InputError: as `Manifest.read`, or the catalogue is damaged or missing.
        """
        while True:
            stamp = _stamp(folder)
            manifest = Manifest.read(folder)
            try:
                return cls(folder, manifest, catalogue_entries(read_table(folder, manifest.catalogue)), stamp)
            except MissingFileError:
                if Manifest.read(folder) == manifest:  # else a writer has replaced both since
                    raise

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


class Change:
    """A new state of a store in the making: files are added beside those of the present one, which stays as it is."""

    def __init__(self, folder: Path, base: State | None) -> None:
        """Begin with what `base` holds. Use `changing`, which holds the lock."""
        self._folder = folder
        self.entries: dict[str, Entry] = {} if base is None else dict(base.entries)
        self.parts: list[Part] = [] if base is None else list(base.manifest.parts)  # by number
        self._next = 1 if base is None else base.manifest.next_number

    def add(self, items: Iterable[Item]) -> None:
        """Write executions as new parts; what is there of the same name is replaced.

        Raises:
            InputError: the system refuses.
        """
        for batch in batches(items):
            part, entries = write_part(self._folder, self._number(), batch)
            self._adopt(part, entries)

    def copy(self, folder: Path, part: Part, entries: Iterable[Entry]) -> None:
        """Take over a part of the store in `folder`, with those of its executions that `entries` names.

        Raises:
            DamagedFileError: a file of it is damaged.
            MissingFileError: a file of it is not there.
            InputError: the system refuses.
        """
        number = self._number()
        files = {
            table: write_checked(self._folder / f"{table}-{number:06d}.parquet", checked_bytes(folder, file))
            for table, file in (("nodes", part.nodes), ("calls", part.calls))
        }
        moved = [replace(entry, part=number) for entry in entries]
        self._adopt(part.model_copy(update={"number": number, **files}), moved)

    def commit(self) -> None:
        """Make this the store's state, in one instant.

        Raises:
            InputError: the system refuses.
        """
        used = {entry.part for entry in self.entries.values()}
        number = self._number()
        catalogue = write_table(
            self._folder / f"executions-{number:06d}.parquet", catalogue_frame(self.entries.values())
        )
        parts = tuple(part for part in self.parts if part.number in used)
        Manifest(next_number=self._next, catalogue=catalogue, parts=parts).write(self._folder)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _adopt(self, part: Part, entries: Iterable[Entry]) -> None:
        self.parts.append(part)
        self.entries.update((entry.record.execution, entry) for entry in entries)


@contextmanager
def changing(folder: Path, *, create: bool = False) -> Iterator[Change]:
    """Lock the store and give a change to fill; it is committed at the end, or not at all on an error.

    What a killed writer left is removed before, and what the new state does not need, after.

    Raises:
        InputError: another writer is at work, the store is damaged, or the system refuses.
    """
    with FolderLock(folder):
        if create and (folder / MANIFEST).exists():
            raise InputError(f"{folder}: another process has made a store there just now; open it")
        base = None if create else State.read(folder)
        _remove(orphans(folder, base.manifest if base else None))
        try:
            change = Change(folder, base)
            yield change
            change.commit()
        finally:
            with suppress(InputError):
                _remove(orphans(folder, Manifest.read(folder)))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):  # it is in nobody's way, and the next writer tries again
            path.unlink()
