"""Where `gyre score` leaves what it found: the table of scores, and the record of every attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..atomic import write_text_atomic
from ..errors import InputError
from .common import refuse_existing

if TYPE_CHECKING:
    from ..scoring.evaluation_log import EvaluationLog


@dataclass(frozen=True, slots=True)
class ScoreTarget:
    """The file of scores; None: they are only shown."""

    out: Path | None
    resume: bool
    force: bool

    @property
    def log_path(self) -> Path | None:
        """The record of every attempt."""
        return self.out.with_suffix(".attempts.jsonl") if self.out is not None else None

    def check(self) -> None:
        """Refuse, before any work is done, what would be refused after it.

        Raises:
            InputError: the options contradict each other, or something is there and none says what to do with it.
        """
        if self.resume and self.force:
            raise InputError("--resume goes on with what is there and --force replaces it; give one of them")
        if self.out is None or self.log_path is None:
            if self.resume or self.force:
                raise InputError(f"--{'resume' if self.resume else 'force'} is about what --out holds: give --out FILE")
            return
        if self.out.suffix != ".jsonl":
            raise InputError(f"{self.out}: scores are written as JSON lines; give a name that ends in .jsonl")
        if not self.resume:
            refuse_existing(self.out, force=self.force)
            if self.log_path.exists() and not self.force:
                raise InputError(f"{self.log_path}: a stopped command left it; go on with it by --resume, or --force")

    @contextmanager
    def opened(self) -> Iterator[EvaluationLog | None]:
        """Open the record of attempts, an empty one with `force`.

        Raises:
            InputError: it is no such record, or in use.
        """
        from ..scoring.evaluation_log import EvaluationLog

        if self.log_path is None:
            yield None
            return
        with EvaluationLog(self.log_path, anew=self.force) as log:
            yield log

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write the table of scores, whole or not at all."""
        if self.out is not None:
            write_text_atomic(self.out, "".join(json.dumps(row) + "\n" for row in rows))
