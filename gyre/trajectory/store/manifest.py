"""What belongs to a store: one small JSON file, replaced whole at each change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ...atomic import write_text_atomic
from ...errors import InputError
from ...folder_lock import LOCK_NAME
from .checked_file import OTHER_VERSION, REMEDY, CheckedFile

MANIFEST: Final = "manifest.json"
FORMAT: Final = "gyre trajectory store"
VERSION: Final = 2
_OURS: Final = re.compile(r"\.?(?:(?:nodes|calls|executions)-(\d{6,})\.parquet|manifest\.json)(?:\.\d+\.tmp)?")
_FIRST: Final = re.compile(r"\.manifest\.json\.\d+\.tmp")


class Part(BaseModel):
    """Two tables that hold the same executions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    executions: int  # that were written; some may have been replaced since
    nodes: CheckedFile
    calls: CheckedFile


class Manifest(BaseModel):
    """A state of a store. Numbers only grow, so a name never stands for two contents."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["gyre trajectory store"] = FORMAT
    version: Literal[2] = VERSION
    next_number: int  # of the next part or catalogue
    catalogues: tuple[CheckedFile, ...]  # of an execution that stands in several, the last one's row counts
    parts: tuple[Part, ...]  # by number

    def files(self) -> Iterator[CheckedFile]:
        """Every file of this state but the manifest."""
        yield from self.catalogues
        for part in self.parts:
            yield part.nodes
            yield part.calls

    def write(self, folder: Path) -> None:
        """Make this the state of the store in `folder`.

        Raises:
            InputError: the system refuses.
        """
        write_text_atomic(folder / MANIFEST, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the state of the store in `folder`.

        Raises:
            InputError: there is no store, it was written by another version of gyre, or the manifest is damaged.
        """
        path = folder / MANIFEST
        try:
            raw = json.loads(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InputError(f"{folder}: no trajectory store; give a folder that has a {MANIFEST}") from error
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); make it readable") from error
        except ValueError as error:
            raise InputError(f"{path}: torn or damaged, no JSON ({error}); {REMEDY}") from error
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise InputError(f"{path}: not of a trajectory store, `format` is not {FORMAT!r}; give another folder")
        version = raw.get("version")
        if isinstance(version, int) and version > VERSION:
            raise InputError(f"{path}: version {version}, written by a newer gyre; this one reads {VERSION}: update it")
        if isinstance(version, int) and version < VERSION:
            raise InputError(f"{folder}: {OTHER_VERSION}")
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{path}: damaged at `{where}` ({first['msg']}); {REMEDY}") from error


def orphans(folder: Path, manifest: Manifest | None) -> list[Path]:
    """Files in `folder` named like a store's that its state does not have: of a writer at work, or of one killed."""
    known = {MANIFEST} | ({file.name for file in manifest.files()} if manifest else set())
    return sorted(path for path in folder.iterdir() if path.name not in known and _OURS.fullmatch(path.name))


def is_left_by_create(name: str) -> bool:
    """Whether a file may be left from a process that was killed while it made a store, before it held anything."""
    return _FIRST.fullmatch(name) is not None


def number_of(path: Path) -> int:
    """Return the number of a store's table, 0 for another file."""
    found = _OURS.fullmatch(path.name)
    return int(found[1] or 0) if found else 0


def require_own(folder: Path) -> None:
    """Make sure that a folder is a store's, however damaged or old, so that what it holds may be replaced.

    Raises:
        InputError: its manifest is of something else; or there is none, or a torn one, and other files than a store's.
    """
    path = folder / MANIFEST
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError):
        foreign = {file.name for file in folder.iterdir() if not _OURS.fullmatch(file.name)} - {LOCK_NAME}
        if foreign:
            raise InputError(f"{folder}: no store, holds {min(foreign)}; give a new or an empty folder") from None
        return
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise InputError(f"{path}: not of a trajectory store, `format` is not {FORMAT!r}; give another folder")
