"""Where the parts of the controller put what they command, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .commands import Command


@dataclass(slots=True)
class Outbox:
    """Commands that the event being handled has caused so far; `time_s` is that event's time."""

    time_s: float = 0.0
    commands: list[Command] = field(default_factory=list)

    def begin(self, time_s: float) -> list[Command]:
        """Begin a new list for an event at `time_s`; return it."""
        self.time_s = time_s
        self.commands = []
        return self.commands

    def put(self, kind: Callable[..., Command], *values: Any) -> None:
        """Command `kind` with these values, at the time of the event."""
        self.commands.append(kind(self.time_s, *values))
