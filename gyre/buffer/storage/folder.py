"""A folder of groups' files: its marker, and the names in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ...atomic import disk_errors, write_text_atomic
from ...errors import InputError
from ...folder_lock import LOCK_NAME
from .item_record import LAYOUT

MARKER: Final = "storage.json"
FORMAT: Final = "gyre group storage"
VERSION: Final = 1
_GROUP: Final = re.compile(r"group-(\d{1,18})\.trees")
_TEMPORARY: Final = re.compile(rf"\.{re.escape(MARKER)}\.\d+\.tmp")
_CONTENT: Final = {"format": FORMAT, "version": VERSION, "layout": LAYOUT}


def group_path(folder: Path, group: int) -> Path:
    """Return where a group's file is."""
    return folder / f"group-{group}.trees"


def group_files(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield the groups that have a file, with its path, in any order."""
    for path in folder.iterdir():
        if name := _GROUP.fullmatch(path.name):
            yield int(name[1]), path


def require_new_or_own(folder: Path) -> None:
    """Make sure that a folder is a storage's; make a new or an empty one to be so. Hold its lock.

    Raises:
        InputError: it holds something else, it was written by another version of gyre, or the system refuses.
    """
    path = folder / MARKER
    try:
        found: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        _make(folder)
        return
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); make it readable") from error
    except ValueError as error:
        raise InputError(f"{path}: torn or damaged, no JSON ({error}); give another folder") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{path}: not of a group storage, `format` is not {FORMAT!r}; give another folder")
    if found != _CONTENT:
        raise InputError(
            f"{path}: version {found.get('version')}, layout {found.get('layout')}, this gyre reads {VERSION}, "
            f"{LAYOUT}; end the run with the gyre that began it, or give another folder"
        )


def _make(folder: Path) -> None:
    with disk_errors(folder):
        others = [path.name for path in folder.iterdir() if not _TEMPORARY.fullmatch(path.name)]
    foreign = sorted(set(others) - {LOCK_NAME})
    if foreign:
        raise InputError(f"{folder}: no group storage, holds {foreign[0]}; give a new or an empty folder")
    write_text_atomic(folder / MARKER, json.dumps(_CONTENT) + "\n")
