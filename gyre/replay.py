"""Rebuild a controller from a journal: its events are fed again, its commands must come out again."""

from __future__ import annotations

from collections.abc import Iterable

from .commands import Command
from .controller import Controller
from .events import Event
from .journal import Entry, Header, JournalError, to_line


def replay(entries: Iterable[Header | Entry], controller: Controller) -> list[Command]:
    """Feed a journal's events to a new controller and compare its commands, to the byte, with those recorded.

    Returns the commands that the last event caused and that the journal does not hold: a run that was cut off between
    an event and its commands goes on by carrying these out.

    Raises:
        JournalError: the controller commands something else than the journal says.
    """
    pending: list[Command] = []
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, Event):
            if pending:
                raise JournalError(f"entry {number}: the journal lacks {to_line(pending[0])}")
            pending = controller.handle(entry)
        elif isinstance(entry, Command):
            expected = to_line(pending.pop(0)) if pending else "nothing"
            if expected != to_line(entry):
                raise JournalError(f"entry {number}: the journal says {to_line(entry)}, the controller says {expected}")
    return pending
