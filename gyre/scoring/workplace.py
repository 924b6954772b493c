"""Where an evaluator works: a folder of its own for what is temporary, and the artefacts, as they are or as a copy."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from .evaluation import Subject
from .folders import LeftOut, copy_folder, lay_over, remove_folder
from .state import MOST_BYTES, MOST_ENTRIES, StoppedError
from .subject_form import subject_json


class Place(StrEnum):
    """Where an evaluator's command runs."""

    ARTEFACTS = "artefacts"  # in what the execution left; what it writes there stays
    COPY = "copy"  # in a copy of it
    SCRATCH = "scratch"  # in an empty folder


@dataclass(frozen=True, slots=True)
class CopyBounds:
    """How much of what an execution left is copied."""

    entries: int = MOST_ENTRIES
    size_bytes: int = MOST_BYTES


@dataclass(frozen=True, slots=True)
class Workplace:
    """Paths of one evaluation."""

    scratch: Path  # removed at the end
    folder: Path  # where the command runs
    artefacts: Path | None  # what the execution left, or its copy
    subject: Path  # JSON file
    result: Path  # where a result may be written
    report: Path  # where a JUnit report may be written
    left_out: LeftOut  # of what the execution left

    def filled_in(self, word: str) -> str:
        """Return a word of a command with `{artefacts}`, `{subject}`, `{result}`, `{report}`, `{scratch}` filled in."""
        for name in ("scratch", "subject", "result", "report"):
            word = word.replace(f"{{{name}}}", str(getattr(self, name)))
        return word.replace("{artefacts}", str(self.artefacts or ""))

    @property
    def environment(self) -> dict[str, str]:
        """Variables that tell a command the same."""
        named = {"SUBJECT": self.subject, "RESULT": self.result, "ARTEFACTS": self.artefacts or ""}
        return {f"GYRE_{name}": str(path) for name, path in named.items()}


@asynccontextmanager
async def workplace(
    subject: Subject, place: Place, overlay: Path | None = None, bounds: CopyBounds | None = None
) -> AsyncIterator[Workplace]:
    """Make an evaluator's workplace, and remove it at the end.

    With `overlay`, the files of that folder are put over the copy of the artefacts, in place of what is there. What may
    not be read of the artefacts counts as not there; where that is their folder itself, an empty one stands for it.

    Raises:
        OSError: the artefacts are not there, or there is no space.
        ValueError: the subject has no JSON form.
    """
    stop = threading.Event()
    scratch = Path(tempfile.mkdtemp(prefix="gyre-score-"))
    try:
        yield await asyncio.to_thread(_set_up_whole, subject, scratch, place, overlay, bounds or CopyBounds(), stop)
    finally:
        stop.set()
        await asyncio.to_thread(remove_folder, scratch)


def _set_up_whole(
    subject: Subject, scratch: Path, place: Place, overlay: Path | None, bounds: CopyBounds, stop: threading.Event
) -> Workplace:
    try:
        return _set_up(subject, scratch, place, overlay, bounds, stop)
    except StoppedError:  # whoever waited is gone, and may have removed it before the last file came
        remove_folder(scratch)
        raise


def _set_up(
    subject: Subject, scratch: Path, place: Place, overlay: Path | None, bounds: CopyBounds, stop: threading.Event
) -> Workplace:
    artefacts = subject.folder.resolve(strict=True) if subject.folder is not None else None
    left_out = LeftOut()
    if artefacts is not None and (place is Place.COPY or not os.access(artefacts, os.R_OK | os.X_OK)):
        source, artefacts = artefacts, scratch / "artefacts"
        left_out = copy_folder(source, artefacts, stop, bounds.entries, bounds.size_bytes)
    if overlay is not None:
        assert artefacts is not None
        lay_over(overlay, artefacts)
    folder = artefacts if artefacts is not None and place is not Place.SCRATCH else scratch / "work"
    folder.mkdir(exist_ok=True)
    file = scratch / "subject.json"
    file.write_bytes(subject_json(subject, artefacts))
    return Workplace(scratch, folder, artefacts, file, scratch / "result.json", scratch / "report.xml", left_out)
