"""What lies where in a run's folder, beside what `gyre.report` writes."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gyre.atomic import disk_errors

_MEMORY: Final = Path("/dev/shm")
_SNAPSHOTS: Final = 3  # the one in use, the next, and one that is being written


@dataclass(frozen=True, slots=True)
class Places:
    """A run's folder."""

    root: Path

    @property
    def calls(self) -> Path:
        """What harnesses called, token by token."""
        return self.root / "calls"

    @property
    def samples(self) -> Path:
        """Groups that may still be trained."""
        return self.root / "samples"

    @property
    def executions(self) -> Path:
        """Working folders of executions, by number and attempt."""
        return self.root / "executions"

    @property
    def evaluations(self) -> Path:
        """Every evaluation that came back."""
        return self.root / "evaluations.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Where `ElasticTraining` puts them, given the run's folder."""
        return self.root / "checkpoints"

    @property
    def weights(self) -> Path:
        """The versions that are served, as engines load them."""
        return self.root / "weights"

    @property
    def model(self) -> Path:
        """What the run has learnt, as a Hugging Face folder: there once the run is complete."""
        return self.root / "model"

    @property
    def logs(self) -> Path:
        """Of the driver, of each engine and each trainer."""
        return self.root / "logs"

    def make(self) -> None:
        """Make the folders.

        Raises:
            InputError: the system refuses.
        """
        for folder in (self.calls, self.executions, self.weights, self.logs):
            with disk_errors(folder):
                folder.mkdir(exist_ok=True)

    def shared(self, snapshot_bytes: int) -> Path:
        """Make and return the folder where cells of this machine find weights: in memory where there is room.

        Its name is the run's own, so that what a killed driver left is found and used again.

        Raises:
            InputError: the system refuses.
        """
        mark = hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()[:16]
        memory = _MEMORY / f"gyre-{os.getuid()}-{mark}"
        if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _SNAPSHOTS * snapshot_bytes:
            with disk_errors(memory):
                memory.mkdir(mode=0o700, exist_ok=True)
                found = memory.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():  # others may plant what they like there
                return memory
        on_disk = self.root / "snapshots"
        with disk_errors(on_disk):
            on_disk.mkdir(exist_ok=True)
        return on_disk
