"""What is wrong with a store's files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .checked_file import CheckedFile, DamagedFileError, MissingFileError, checked_bytes


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that is damaged or missing."""

    path: Path
    text: str  # one line for people, with the remedy
    executions: tuple[str, ...]  # that cannot be read for it


def file_problem(folder: Path, file: CheckedFile, executions: tuple[str, ...]) -> Problem | None:
    """Return what is wrong with a file, if anything; `executions` are those with rows in it."""
    try:
        checked_bytes(folder, file)
    except (DamagedFileError, MissingFileError) as error:
        return Problem(folder / file.name, str(error), executions)
    return None
