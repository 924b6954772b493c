"""What all rules have in common: name, weight, stage, what they cap, and from when on they count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..evaluation import CheckStage, Subject
from ..limits import Limits
from ..workplace import Workplace
from .artefacts import Artefacts
from .task_value import filled, has_open_fields
from .verdict import BrokenRuleError, FailedCheckError, Verdict

Share = Annotated[float, Field(ge=0, le=1)]


class Strict(BaseModel):
    """A table of a rules file: unknown keys, NaN and infinity are refused, and it does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OnTimeout(StrEnum):
    """What a rule that takes too long says."""

    FAIL = "fail"  # the check failed: what was judged made it hang
    INVALID = "invalid"  # nothing: the evaluation is made again


@dataclass(frozen=True, slots=True)
class Judging:
    """All that a rule may look at."""

    subject: Subject
    place: Workplace  # where the artefacts are for this evaluation
    rules_folder: Path  # where the rules file is: what belongs to the rules is relative to it
    limits: Limits  # on what rules run
    outputs: Mapping[str, str | None]  # what the rules that have run printed, by their names

    @property
    def folder(self) -> Path:
        """The folder of the artefacts.

        Raises:
            FailedCheckError: there are none.
        """
        if self.place.artefacts is None:
            raise FailedCheckError("the execution left nothing")
        return self.place.artefacts

    def artefacts(self, seconds: float) -> Artefacts:
        """Return the artefacts, to be looked at for `seconds`.

        Raises:
            FailedCheckError: there are none.
        """
        return Artefacts.of(self.folder, seconds)

    def of_the_rules(self, path: str) -> Path:
        """Return where something that belongs to the rules is.

        Raises:
            BrokenRuleError: it is not there.
        """
        found = self.rules_folder / path
        if not found.exists():
            raise BrokenRuleError(f"{found}: not there")
        return found


class Rule(Strict, ABC):
    """A rule of a file. Each kind adds fields, and says how it judges."""

    needs_copy: ClassVar[bool] = False  # what it runs may change the artefacts

    name: str = Field(pattern=r"^\w[\w ./:-]{0,79}$", description="unique in its file")
    kind: str
    stage: CheckStage = CheckStage.OUTCOME
    weight: float = Field(default=1.0, ge=0, le=1e6, description="share in the mean; 0: watched only")
    gate: bool = Field(default=False, description="the score is 0 while this rule fails")
    cap: Share | None = Field(default=None, description="most that the score can be while this rule fails")
    pass_at: Share = Field(default=1.0, description="from which share on the rule counts as passed, for gate and cap")
    from_version: int | None = Field(default=None, ge=0, description="version that switches it on; unset: its stage's")
    ramp_versions: int | None = Field(default=None, ge=0, description="versions until its whole weight")
    after: tuple[str, ...] = Field(default=(), description="rules that must have run before")
    seconds: float = Field(default=60.0, gt=0, le=86_400, description="most that it may take")
    on_timeout: OnTimeout = OnTimeout.FAIL

    @abstractmethod
    async def judge(self, judging: Judging) -> Verdict:
        """Return what the rule says.

        Raises:
            FailedCheckError: it fails, for a reason that the execution answers for.
            BrokenRuleError: the rule does not work.
            TimeoutError: it took too long.
        """

    @property
    def comes_after(self) -> frozenset[str]:
        """Names of the rules that must have run before this one."""
        return frozenset(self.after)

    def check_files(self, folder: Path, where: str) -> None:
        """Look whether what belongs to the rule is there, beside the rules file in `folder`.

        Raises:
            InputError: it is not, or cannot be used; the message begins with `where`.
        """

    def belongings(self, folder: Path) -> list[Path]:
        """Files and folders beside the rules file, in `folder`, that the verdict depends on; a task's own left out."""
        return []

    def check_before(self, other: Rule, where: str) -> None:
        """Look whether `other`, which runs before, is a rule that this one can come after.

        Raises:
            InputError: it is not; the message begins with `where`.
        """

    def for_task(self, data: Mapping[str, Any]) -> Self:
        """Return the rule with the fields that a task brings filled in.

        Raises:
            BrokenRuleError: the task has no such field, or what it holds does not fit.
        """
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if not any(map(has_open_fields, given.values())):
            return self
        try:
            return type(self).model_validate({name: filled(value, data) for name, value in given.items()})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise BrokenRuleError(f"what the task gives for {field!r} does not fit: {first['msg']}") from error
