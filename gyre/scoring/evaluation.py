"""What an evaluator is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from ..outcome import Outcome


class CheckStage(StrEnum):
    """What a check looks at."""

    OUTCOME = "outcome"  # what the execution left
    PROCESS = "process"  # how it came there; may be switched on later in a run


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    passed: float  # share, 0 to 1
    weight: float = 1.0
    stage: CheckStage = CheckStage.OUTCOME
    detail: str = ""  # for people: the first failed assertion, the value found; bounded in length


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came of one attempt to evaluate an execution.

    A valid score of 0 is a result. An evaluation that is not valid says nothing of the execution: the evaluator failed.
    """

    valid: bool
    score: float | None  # finite if valid, else None
    reference: str = ""  # names the state that was judged: "sha256:..." of the artefacts, a commit, an image
    reason: str = ""  # why it is not valid, in one line
    checks: tuple[Check, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON values, for people; bounded in size
    seconds: float = 0.0


def event_checks(evaluation: Evaluation) -> tuple[tuple[str, float], ...]:
    """Return names and shares of the checks as the event of a score has them (`gyre.events.ExecutionScored.checks`).

    A check on the process is named `process:NAME` there, which the watch and the report know it by.
    """
    return tuple((_event_name(check), check.passed) for check in evaluation.checks)


def _event_name(check: Check) -> str:
    prefix = f"{CheckStage.PROCESS.value}:"
    is_plain = check.stage is CheckStage.OUTCOME or check.name.startswith(prefix)
    return check.name if is_plain else prefix + check.name


@dataclass(frozen=True, slots=True)
class Subject:
    """An ended execution, as an evaluator sees it."""

    execution: str
    group: str = ""
    task: str = ""
    folder: Path | None = None  # what the execution left; None: nothing
    outcome: Outcome = Outcome.COMPLETED
    attempt: int = 0
    version: int = 0  # weights trained so far: process checks may be switched on by it
    tool_calls: int | None = None  # None: not known
    steps: int | None = None  # model calls of the main thread
    answer: str | None = None  # the last text of the policy, where there is one
    data: Mapping[str, Any] = field(default_factory=dict)  # the task's own fields, such as the expected result


class Evaluator(Protocol):
    """Judges executions. It may be asked again about one (`attempt`), and by many tasks of one event loop at once."""

    async def evaluate(self, subject: Subject) -> Evaluation:
        """Return the evaluation; a failure of the evaluator itself is an evaluation that is not valid, no exception.

        Cancelling it ends whatever it started.
        """
        ...
