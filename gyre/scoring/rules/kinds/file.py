"""A file, or the files that a glob matches: there or not, changed or not, how large, how many."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ....errors import InputError
from ..artefacts import Artefacts
from ..rule import Judging, Rule
from ..task_value import OR_FROM_TASK, FromTask, TaskText
from ..verdict import FailedCheckError, Verdict, passes


class State(StrEnum):
    """What is asked of a file."""

    EXISTS = "exists"
    ABSENT = "absent"
    CHANGED = "changed"  # there, and not as in the baseline
    UNCHANGED = "unchanged"  # as in the baseline; of a glob: none added, none gone, all the same


class FileRule(Rule):
    """Passes if a file, or every file that a glob matches, is as it should be.

    `changed` and `unchanged` compare with a digest or with the file of the same path below a baseline folder.
    """

    kind: Literal["file"]
    path: TaskText | None = None
    glob: TaskText | None = Field(default=None, description="`**` stands for any folders; links are not followed")
    state: State = State.EXISTS
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$"), OR_FROM_TASK] | None = None
    baseline: TaskText | None = Field(default=None, description="folder, beside the rules file")
    min_bytes: int | None = Field(default=None, ge=0)
    max_bytes: int | None = Field(default=None, ge=0)
    at_least: int = Field(default=1, ge=0, description="files that the glob matches")
    at_most: int | None = Field(default=None, ge=0, description="files that the glob matches")

    @model_validator(mode="after")
    def _fields_that_fit(self) -> Self:
        if (self.path is None) == (self.glob is None):
            raise ValueError("give either path or glob")
        compares = self.state in {State.CHANGED, State.UNCHANGED}
        if compares != ((self.sha256 is None) != (self.baseline is None)):
            raise ValueError("changed and unchanged need either sha256 or baseline, and nothing else takes them")
        if self.glob is not None and (self.state is State.CHANGED or self.sha256 is not None):
            raise ValueError("a glob exists, is absent, or is unchanged against a baseline folder")
        if self.glob is None and not self.model_fields_set.isdisjoint({"at_least", "at_most"}):
            raise ValueError("at_least and at_most count the files of a glob")
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError("at_most is below at_least")
        if self.state is not State.EXISTS and (self.min_bytes, self.max_bytes) != (None, None):
            raise ValueError("min_bytes and max_bytes are for what exists")
        if isinstance(self.glob, str) and (self.glob.startswith("/") or ".." in PurePosixPath(self.glob).parts):
            raise ValueError("leads out of the artefacts")
        return self

    def check_files(self, folder: Path, where: str) -> None:
        """Refuse a baseline that is no folder."""
        if self.baseline is None or isinstance(self.baseline, FromTask):
            return
        if not (folder / self.baseline).is_dir():
            raise InputError(f"{where}: baseline: {folder / self.baseline}: no such folder")

    def belongings(self, folder: Path) -> list[Path]:
        """The baseline."""
        return [folder / self.baseline] if isinstance(self.baseline, str) else []

    async def judge(self, judging: Judging) -> Verdict:
        """Look, in a thread: files may be large."""
        artefacts = judging.artefacts(self.seconds)
        baseline = None
        if self.baseline is not None:
            baseline = Artefacts.of_the_rules(judging.of_the_rules(self.baseline), self.seconds)
        return await asyncio.to_thread(self._look, artefacts, baseline)

    def _look(self, artefacts: Artefacts, baseline: Artefacts | None) -> Verdict:
        if self.glob is not None:
            return self._look_at_all(artefacts, baseline, self.glob)
        assert self.path is not None
        found = artefacts.find(self.path)
        if self.state is State.ABSENT:
            return passes(met=found is None, detail=f"{self.path}: is there")
        if self.state is State.UNCHANGED:
            return passes(met=self._same(artefacts, baseline, self.path), detail=f"{self.path}: changed")
        if found is None:
            return Verdict(0.0, f"{self.path}: no such file")
        if self.state is State.CHANGED:
            return passes(met=not self._same(artefacts, baseline, self.path), detail=f"{self.path}: unchanged")
        return self._sizes(artefacts, [self.path]) if found.is_file() else self._folder_size()

    def _look_at_all(self, artefacts: Artefacts, baseline: Artefacts | None, glob: str) -> Verdict:
        paths = artefacts.matching(glob)
        if self.state is State.ABSENT:
            return passes(met=not paths, detail=f"{paths[0]}: is there" if paths else "")
        if baseline is not None:
            every = sorted({*paths, *baseline.matching(glob)})
            other = next((path for path in every if not self._same(artefacts, baseline, path)), None)
            return passes(met=other is None, detail=f"{other}: changed")
        if not self.at_least <= len(paths) <= (len(paths) if self.at_most is None else self.at_most):
            most = "" if self.at_most is None else f", {self.at_most} at most"
            return Verdict(0.0, f"{glob}: {len(paths)} files, {self.at_least} at least{most}")
        return self._sizes(artefacts, paths)

    def _same(self, artefacts: Artefacts, baseline: Artefacts | None, path: str) -> bool:
        """Whether a file is as in the baseline; where neither has it, it is."""
        if baseline is None:
            return artefacts.find(path) is not None and artefacts.sha256(path) == self.sha256
        there, before = artefacts.find(path), baseline.find(path)
        if there is None or before is None:
            return there is before
        if not (there.is_file() and before.is_file()):
            raise FailedCheckError(f"{path}: a folder; compare its files with a glob")
        return artefacts.size(path) == baseline.size(path) and artefacts.sha256(path) == baseline.sha256(path)

    def _sizes(self, artefacts: Artefacts, paths: list[str]) -> Verdict:
        if self.min_bytes is None and self.max_bytes is None:
            return Verdict(1.0)
        for path in paths:
            size = artefacts.size(path)
            if size < (self.min_bytes or 0) or (self.max_bytes is not None and size > self.max_bytes):
                return Verdict(0.0, f"{path}: {size:,} bytes")
        return Verdict(1.0)

    def _folder_size(self) -> Verdict:
        met = self.min_bytes is None and self.max_bytes is None
        return passes(met=met, detail=f"{self.path}: a folder, which has no size")
