"""How the folder of a run is known. Apart from what reads one, for a look must be quick."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ...journal import JOURNAL_FILE


def is_run_folder(path: Path) -> bool:
    """Whether a folder holds the journal of a run, by its first line; never raises."""
    with suppress(OSError, UnicodeDecodeError), (path / JOURNAL_FILE).open(encoding="utf-8") as file:
        return file.readline(64).startswith('{"journal":')
    return False
