"""Evaluations by the scorer of `gyre.scoring`."""

from __future__ import annotations

from gyre.scoring.evaluation import Evaluation, Subject
from gyre.scoring.scorer import Scorer

from .ports import Assignment, Ended


class ScoredEvaluations:
    """Asks a scorer. With a record of evaluations, it does not make one again that came back before a restart."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    async def evaluate(self, assignment: Assignment, ended: Ended, attempt: int, version: int) -> Evaluation:
        """See `Evaluations.evaluate`."""
        subject = Subject(
            execution=ended.calls,
            group=str(assignment.group),
            task=assignment.task.name,
            folder=ended.folder,
            outcome=ended.outcome,
            attempt=attempt,
            version=version,
            tool_calls=ended.tool_calls,
            steps=ended.steps,
            data=assignment.task.data,
        )
        return await self._scorer.score(subject)
