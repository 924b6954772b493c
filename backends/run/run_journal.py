"""The journal of a real run: written ahead of every command, and read back after a restart.

An event and the commands that it caused are handed to the system in one write before any of the commands is carried
out, so a killed driver loses nothing that had an effect. What must also survive a power failure is synchronised before
its commands are carried out: what is dispatched, before its folders are made; an update, before a checkpoint can hold
it; the end of a group, before its samples are deleted. The rest is synchronised every `sync_s` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gyre import commands as cmd
from gyre.commands import Command
from gyre.controller import Controller
from gyre.errors import InputError
from gyre.events import Event
from gyre.groups import IllegalMoveError
from gyre.journal import Entry, Header, JournalError
from gyre.replay import replay
from gyre.report import ResultsFolder
from gyre.report.folder import JOURNAL
from gyre.report.journal_file import JournalReader, JournalWriter, whole_length

from .book import RunBook

SYNC_S: Final = 1.0
_SYNCHRONISED: Final = (cmd.DispatchGroup, cmd.AddExecutions, cmd.ApplyUpdate, cmd.ReleaseGroup, cmd.DropGroup)


class RunJournal:
    """The journal of a run, with the controller and the book that it leads to."""

    def __init__(self, writer: JournalWriter, controller: Controller, book: RunBook) -> None:
        """Use `open`."""
        self.controller = controller
        self.book = book
        self._writer = writer
        self._dirty = False

    @classmethod
    def open(cls, folder: ResultsFolder, controller: Controller, book: RunBook) -> RunJournal:
        """Begin the journal in a folder, or read the one that is there and go on with it.

        A torn last line is cut off. What a killed driver had not written of the last event's commands is added; none is
        carried out: `RunResumed` has all that is open commanded again.

        Raises:
            InputError: the journal is damaged, or the controller commands something else than it says.
        """
        path = folder.path / JOURNAL
        pending: list[Command] = []
        if path.exists() and whole_length(path):
            pending = _replayed(path, controller, book)
        journal = cls(folder.open_journal(append=True), controller, book)
        journal._append(pending)
        journal._writer.sync()
        return journal

    @property
    def complete(self) -> bool:
        """Whether the last step is made, and its weights are durable."""
        return self.controller.stopped and self.book.saved_version >= self.controller.version

    def commit(self, event: Event) -> list[Command]:
        """Give an event to the controller; return its commands once both are written.

        Raises:
            InputError: the disk is full, or as `Controller.handle`.
            IllegalMoveError: as `Controller.handle`; the event is not written then.
        """
        commands = self.controller.handle(event)
        self._append([event, *commands])
        if any(isinstance(command, _SYNCHRONISED) for command in commands):
            self._writer.sync()
            self._dirty = False
        return commands

    def _append(self, entries: Sequence[Event | Command]) -> None:
        for entry in entries:
            self._writer.append(entry)
            self.book.note(entry)
        self._writer.flush()
        self._dirty = bool(entries) or self._dirty

    async def sync_regularly(self, every_s: float = SYNC_S) -> None:
        """Synchronise again and again what was written, in a thread: a disk may take its time."""
        while True:
            await asyncio.sleep(every_s)
            if self._dirty:
                self._dirty = False
                await asyncio.to_thread(self._writer.sync)


def _replayed(path: Path, controller: Controller, book: RunBook) -> list[Command]:
    def noted() -> Iterator[Header | Entry]:
        for entry in JournalReader(path):
            book.note(entry)
            yield entry

    try:
        return replay(noted(), controller)
    except (JournalError, IllegalMoveError, LookupError) as error:  # a journal of another run contradicts itself here
        raise InputError(
            f"{path}: {error}; it was written with other settings or by another gyre: go on with those, "
            "or give another folder"
        ) from error
