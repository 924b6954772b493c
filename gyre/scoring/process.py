"""What evaluators share that run a command."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Generic, TypeVar

from .evaluation import Evaluation, Subject
from .folders import LeftOut
from .isolated import run_isolated
from .isolated_run import Run
from .result import invalid
from .settings import ProcessSettings, ScoreOrInvalid
from .workplace import CopyBounds, Workplace, workplace

S = TypeVar("S", bound=ProcessSettings)


class ProcessEvaluator(ABC, Generic[S]):
    """Runs a command for each evaluation, in a workplace of its own, and reads its result."""

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @abstractmethod
    def argv(self, place: Workplace) -> list[str]:
        """Return the command."""

    @abstractmethod
    def read(self, run: Run, place: Workplace) -> Evaluation:
        """Return what a run that ended by itself says. It may block."""

    def environment(self, place: Workplace) -> dict[str, str]:
        """Return the variables that the command gets beyond a clean environment."""
        passed_on = {name: os.environ[name] for name in self.settings.pass_env if name in os.environ}
        return {"PYTHONDONTWRITEBYTECODE": "1", **place.environment, **passed_on, **self.settings.env}

    async def evaluate(self, subject: Subject) -> Evaluation:
        """Run the command on what an execution left; see `Evaluator`."""
        settings = self.settings
        try:
            bounds = CopyBounds(settings.copy_entries, settings.copy_bytes)
            async with workplace(subject, settings.place, settings.overlay, bounds) as place:
                run = await run_isolated(
                    self.argv(place),
                    folder=place.folder,
                    scratch=place.scratch,
                    limits=settings.limits,
                    env=self.environment(place),
                    stdin=place.subject,
                )
                evaluation = await asyncio.to_thread(self._read, run, place)
        except (OSError, ValueError, TypeError) as error:
            where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
            return invalid(f"cannot be evaluated: {where}{getattr(error, 'strerror', None) or error}")
        return evaluation

    def _read(self, run: Run, place: Workplace) -> Evaluation:
        if run.out_of_time:
            evaluation = scored_or_invalid(self.settings.score_at_limit, run.failure)
        elif run.crashed:
            evaluation = scored_or_invalid(self.settings.score_at_crash, run.failure)
        elif run.failure:
            evaluation = invalid(run.failure)
        else:
            evaluation = self.read(run, place)
        return with_left_out(with_details(evaluation, run=facts(run)), place.left_out)


def scored_or_invalid(score: ScoreOrInvalid, reason: str, **details: Any) -> Evaluation:
    """Return the evaluation of a run that gave no result, by what the settings say of that."""
    return with_details(invalid(reason) if score == "invalid" else Evaluation(True, score, reason=reason), **details)


def with_left_out(evaluation: Evaluation, left_out: LeftOut) -> Evaluation:
    """Return an evaluation that tells what the evaluator did not see of what the execution left."""
    said = left_out.sentence
    return replace(evaluation, reason="; ".join(filter(None, (evaluation.reason, said)))) if said else evaluation


def with_details(evaluation: Evaluation, **more: Any) -> Evaluation:
    """Return an evaluation with more for people to read."""
    return replace(evaluation, details={**evaluation.details, **more})


def facts(run: Run) -> dict[str, Any]:
    """Return what people want to know of a run."""
    return {
        "why": run.why.value,
        "exit_code": run.exit_code,
        "seconds": round(run.seconds, 3),
        "cpu_s": round(run.cpu_s, 3),
        "memory_bytes": run.memory_bytes,
        "processes_left": run.left,
        "processes_stuck": run.stuck,
        "printed_bytes": [run.output.total, run.errors.total],
        "stdout": run.output.last_text,
        "stderr": run.errors.last_text,
    }
