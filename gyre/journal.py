"""The journal: an append-only list of what a run saw (events) and did (commands), one JSON object a line.

The first line is a header. An event line is followed by the commands that it caused, so that feeding the events to a new
controller gives the same lines again, to the byte. This module only converts; `gyre.report.folder` reads and writes files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from . import commands as commands_module
from . import events as events_module
from .commands import Command
from .events import Event

JOURNAL_VERSION: Final = 1

Entry = Event | Command


class JournalError(ValueError):
    """A line of a journal cannot be read; the message says which and why."""


def _registry(module: Any, base: type) -> dict[str, type]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and value is not base
    }


EVENTS: Final = _registry(events_module, Event)
COMMANDS: Final = _registry(commands_module, Command)
_KEY: Final = {**dict.fromkeys(EVENTS.values(), "event"), **dict.fromkeys(COMMANDS.values(), "command")}
_FIELDS: Final = {kind: tuple(f.name for f in fields(kind)) for kind in _KEY}
_HINTS: Final = {kind: get_type_hints(kind) for kind in _KEY}
_encode: Final = json.JSONEncoder(
    separators=(",", ":"),
    allow_nan=False,
    default=lambda value: {f.name: getattr(value, f.name) for f in fields(value)},
).encode


@dataclass(frozen=True, slots=True)
class Header:
    """First line of a journal: its version and the settings that the run was made with."""

    settings: dict[str, Any]
    version: int = JOURNAL_VERSION

    def to_line(self) -> str:
        """Return the header as one JSON line, without a line end."""
        return _encode({"journal": self.version, "settings": self.settings})


def to_line(entry: Entry) -> str:
    """Return an event or command as one JSON line, without a line end."""
    kind = type(entry)
    return _encode({_KEY[kind]: kind.__name__, **{name: getattr(entry, name) for name in _FIELDS[kind]}})


def _value(hint: Any, raw: Any) -> Any:
    """Turn a JSON value into what a field's annotation asks for; raise TypeError or ValueError where it is not that."""
    if get_origin(hint) is UnionType:
        return None if raw is None else _value(get_args(hint)[0], raw)
    if get_origin(hint) is tuple:
        if not isinstance(raw, list):
            raise TypeError(f"expected a list, got {raw!r}")
        inner = get_args(hint)
        if inner[-1] is Ellipsis:
            return tuple(_value(inner[0], item) for item in raw)
        return tuple(_value(kind, item) for kind, item in zip(inner, raw, strict=True))
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        return hint(**{name: _value(hints[name], item) for name, item in raw.items()})
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(raw)
    if hint is float and type(raw) is int:
        return float(raw)
    if type(raw) is not hint:
        raise TypeError(f"expected {hint.__name__}, got {raw!r}")
    return raw


def from_line(line: str, number: int) -> Header | Entry:
    """Read one line of a journal; `number` counts from 1 and is used in errors.

    Raises:
        JournalError: the line is no JSON, names an unknown event or command, or lacks a field.
    """
    try:
        raw = json.loads(line)
        if "journal" in raw:
            if raw["journal"] != JOURNAL_VERSION:
                raise JournalError(
                    f"line {number}: journal version {raw['journal']}, this gyre reads {JOURNAL_VERSION}"
                )
            return Header(settings=raw["settings"], version=raw["journal"])
        kind = EVENTS[raw.pop("event")] if "event" in raw else COMMANDS[raw.pop("command")]
        hints = _HINTS[kind]
        return kind(**{name: _value(hints[name], raw[name]) for name in _FIELDS[kind]})  # type: ignore[no-any-return]
    except JournalError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise JournalError(f"line {number}: not a journal entry ({type(error).__name__}: {error})") from error


def parse(lines: Iterable[str]) -> Iterator[Header | Entry]:
    """Read a journal line by line. The first line must be a header.

    Raises:
        JournalError: a line cannot be read, or the first is not a header.
    """
    for number, line in enumerate(lines, start=1):
        entry = from_line(line, number)
        if (number == 1) != isinstance(entry, Header):
            raise JournalError(f"line {number}: {'no journal header' if number == 1 else 'a second header'}")
        yield entry
