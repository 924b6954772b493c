"""What `gyre score` found, as a table for people and as rows for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich.table import Table
from rich.text import Text

from ..scoring.evaluation import Evaluation, Subject
from ..scoring.partial import Treatment, treatment_of
from .common import counted


@dataclass(frozen=True, slots=True)
class Scored:
    """An execution and the last word on it."""

    subject: Subject
    evaluation: Evaluation
    attempts: int

    @property
    def dropped(self) -> bool:
        """Whether it is not to have a score, by how it ended."""
        return treatment_of(self.subject.outcome) is Treatment.DROP

    def row(self) -> dict[str, Any]:
        """Return the row of the table of scores; `group` only where it is known."""
        subject, evaluation = self.subject, self.evaluation
        group = {"group": subject.group} if subject.group else {}
        return {
            "execution": subject.execution,
            **group,
            "score": evaluation.score,
            "valid": evaluation.valid,
            "reason": evaluation.reason,
            "reference": evaluation.reference,
            "outcome": subject.outcome.value,
            "attempts": self.attempts,
            "seconds": round(evaluation.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class ScoreResults:
    """All executions, in the order in which they were given."""

    scored: Sequence[Scored]
    problems: Sequence[str]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of the table of scores."""
        return [one.row() for one in self.scored]

    @property
    def without_score(self) -> int:
        """Executions that should have a valid evaluation and have none."""
        return sum(not one.evaluation.valid and not one.dropped for one in self.scored)

    @property
    def summary(self) -> str:
        """One line on all of them."""
        scores = [one.evaluation.score for one in self.scored if one.evaluation.score is not None]
        mean = f", mean score {fmean(scores):.4g}" if scores else ""
        dropped = sum(one.dropped for one in self.scored)
        parts = [f"{len(scores):,} valid{mean}", f"{self.without_score:,} not valid"]
        return f"{counted(len(self.scored), 'execution')}: {', '.join(parts)}" + (
            f", {dropped:,} dropped by how they ended" if dropped else ""
        )

    def to_json(self) -> dict[str, Any]:
        """Return all as JSON values, with what evaluators said besides the score."""
        executions = [
            one.row()
            | {
                "checks": [
                    {"name": check.name, "passed": check.passed, "weight": check.weight, "stage": check.stage.value}
                    | ({"detail": check.detail} if check.detail else {})
                    for check in one.evaluation.checks
                ],
                "details": dict(one.evaluation.details),
            }
            for one in self.scored
        ]
        return {"executions": executions, "without_score": self.without_score, "problems": list(self.problems)}

    def table(self) -> Table:
        """Return the table for a terminal."""
        table = Table("execution", box=None, pad_edge=False, header_style="bold")
        table.add_column("score", justify="right")
        table.add_column("valid")
        table.add_column("attempts", justify="right")
        table.add_column("seconds", justify="right")
        table.add_column("reason")
        for one in self.scored:
            evaluation = one.evaluation
            score = "" if evaluation.score is None else f"{evaluation.score:.4g}"
            valid = "yes" if evaluation.valid else "dropped" if one.dropped else "no"
            seconds = f"{evaluation.seconds:.1f}"
            # As text: what evaluators say may look like rich's markup.
            table.add_row(
                Text(one.subject.execution), score, valid, str(one.attempts), seconds, Text(evaluation.reason)
            )
        return table
