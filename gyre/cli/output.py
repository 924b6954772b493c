"""Output files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import InputError


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise `InputError` if `path` exists and `force` is not given, before any work is done for it."""
    if path.exists() and not force:
        raise InputError(f"{path}: exists already; choose another name, or overwrite it with --force")


def write_text(path: Path, text: str) -> None:
    """Write a text file under a temporary name beside `path`, then rename it.

    Raises:
        InputError: the folder is missing or cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}; choose another place") from error
    finally:
        partial.unlink(missing_ok=True)
