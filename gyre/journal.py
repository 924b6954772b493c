"""The journal: an append-only list of what a run saw (events) and did (commands), one JSON object a line.

The first line is a header. An event line is followed by the commands that it caused, so that feeding the events to a
new controller gives the same lines again, to the byte. This module only converts; `gyre.report` reads and writes files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from pydantic_core import from_json, to_json

from . import commands as commands_module
from . import events as events_module
from .commands import Command
from .events import Event

JOURNAL_VERSION: Final = 2
JOURNAL_FILE: Final = "journal.jsonl"  # its name in a run's folder
_READABLE: Final = (1, 2)  # version 1 lacks the fields that have a default

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
_HEADER_KEYS: Final = {"journal", "settings"}
_FIELDS: Final = {kind: tuple(f.name for f in fields(kind)) for kind in _KEY}


@dataclass(frozen=True, slots=True)
class Header:
    """First line of a journal: its version and the settings that the run was made with."""

    settings: dict[str, Any]
    version: int = JOURNAL_VERSION

    def to_line(self) -> str:
        """Return the header as one JSON line, without a line end."""
        return to_json({"journal": self.version, "settings": self.settings}).decode()


def to_line(entry: Entry) -> str:
    """Return an event or command as one JSON line, without a line end."""
    kind = type(entry)
    values = {_KEY[kind]: kind.__name__}
    for name in _FIELDS[kind]:
        values[name] = getattr(entry, name)
    return to_json(values).decode()


Reader = Callable[[Any], Any]


def _exactly(kind: type) -> Reader:
    def read(raw: Any) -> Any:
        if type(raw) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {raw!r}")
        return raw

    return read


def _number(raw: Any) -> float:
    if type(raw) not in (int, float):
        raise TypeError(f"expected a number, got {raw!r}")
    return float(raw)


def _items(raw: Any) -> list[Any]:
    if not isinstance(raw, list):
        raise TypeError(f"expected a list, got {raw!r}")
    return raw


def _reader(hint: Any) -> Reader:
    """Return what turns a JSON value into one of this annotation, or raises TypeError or ValueError."""
    if get_origin(hint) is UnionType:
        inner = _reader(get_args(hint)[0])
        return lambda raw: None if raw is None else inner(raw)
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        readers = [_reader(part) for part in parts if part is not Ellipsis]
        if parts[-1] is Ellipsis:
            return lambda raw: tuple(map(readers[0], _items(raw)))
        return lambda raw: tuple(read(item) for read, item in zip(readers, _items(raw), strict=True))
    if is_dataclass(hint) and isinstance(hint, type):
        named = {name: _reader(part) for name, part in get_type_hints(hint).items()}
        return lambda raw: hint(**{name: read(raw[name]) for name, read in named.items()})
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    return _number if hint is float else _exactly(hint)


def _refuse_unknown(raw: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(raw.keys() - known)
    raise ValueError(f"unknown key {', '.join(unknown)}")


_READERS: Final = {
    kind: tuple((name, _reader(get_type_hints(kind)[name])) for name in names) for kind, names in _FIELDS.items()
}
_DEFAULTS: Final = {
    kind: tuple((f.name, [] if f.default == () else f.default) for f in fields(kind) if f.default is not MISSING)
    for kind in _KEY
}


def from_line(line: str, number: int) -> Header | Entry:
    """Read one line of a journal; `number` counts from 1 and is used in errors.

    Raises:
        JournalError: the line is no JSON, names an unknown event or command, lacks a field or has one too many, or its
            time is negative or no number.
    """
    try:
        raw = from_json(line)
        if "journal" in raw:
            if raw["journal"] not in _READABLE:
                version = raw["journal"]
                raise JournalError(f"line {number}: journal version {version}, this gyre reads {_READABLE}")
            if len(raw) != len(_HEADER_KEYS):
                _refuse_unknown(raw, _HEADER_KEYS)
            return Header(settings=raw["settings"], version=raw["journal"])
        kind = EVENTS[raw["event"]] if "event" in raw else COMMANDS[raw["command"]]
        readers = _READERS[kind]
        for name, default in _DEFAULTS[kind]:
            raw.setdefault(name, default)
        entry: Entry = kind(*[read(raw[name]) for name, read in readers])
        if len(raw) != len(readers) + 1:
            _refuse_unknown(raw, {_KEY[kind], *_FIELDS[kind]})
        if not 0.0 <= entry.time_s < math.inf:
            raise ValueError(f"time_s is {entry.time_s}, expected seconds since the run began")
        return entry
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
