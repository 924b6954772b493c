"""What is wrong with a log, for people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

UNREADABLE: Final = (ValueError, KeyError, TypeError, OverflowError)  # what a record that does not fit raises


@dataclass(frozen=True, slots=True)
class Problem:
    """Bytes of a log that cannot be read."""

    path: Path
    offset: int  # bytes from the file's start
    size: int  # bytes lost
    what: str
    remedy: str
    dependents: int = 0  # calls that continue a call in these bytes, and cannot be read without it

    def __str__(self) -> str:
        """Return one line."""
        calls = f"{self.dependents} later call{'s' * (self.dependents != 1)}"
        lost = f"; with it {calls} that continue from there" if self.dependents else ""
        return f"{self.path}: {self.size} bytes from byte {self.offset}: {self.what}{lost}; {self.remedy}"


def problem_words(error: Exception) -> str:
    """Return what one of `UNREADABLE` says of a record, as people may see it."""
    return f"field {error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
