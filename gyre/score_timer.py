"""The timer of one attempt to evaluate an execution: after it the attempt counts as failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

_KIND: Final = "score"


@dataclass(frozen=True, slots=True)
class ScoreTimer:
    """What a `SetTimer` or `Timer` named `score/<execution>/<attempt>` is about."""

    execution: int
    attempt: int

    @property
    def name(self) -> str:
        """Its name in the journal."""
        return f"{_KIND}/{self.execution}/{self.attempt}"

    @classmethod
    def named(cls, name: str) -> Self | None:
        """Return the timer of this name; None for another kind of timer."""
        kind, _, key = name.partition("/")
        if kind != _KIND:
            return None
        execution, _, attempt = key.partition("/")
        return cls(int(execution), int(attempt))
