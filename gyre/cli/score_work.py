"""Evaluates executions for `gyre score`: many at once, until all are done or the user asks to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..scoring.evaluation import Evaluation, Subject
from ..scoring.evaluation_log import EvaluationLog
from ..scoring.making import make_scorer
from ..scoring.partial import Treatment, treatment_of
from ..scoring.scorer import Scorer
from ..scoring.settings import EvaluatorSettings
from .common import counted
from .interrupt import CommandStoppedError, Interrupt
from .score_results import Scored, ScoreResults

_LOOK_EVERY_S: Final = 0.1


def scored(
    subjects: Sequence[Subject],
    settings: EvaluatorSettings,
    log: EvaluationLog | None,
    jobs: int,
    attempts: int,
    *,
    interrupt: Interrupt,
    quiet: bool,
) -> ScoreResults:
    """Evaluate executions, `jobs` at a time, each until an evaluation is valid or `attempts` were not.

    Raises:
        InputError: the evaluator cannot be made.
        CommandStoppedError: the user asked to stop.
    """
    logging.getLogger("gyre.scoring").addHandler(logging.NullHandler())  # the table says the same
    scorer = make_scorer(settings, jobs=jobs, log=log)
    problems = [*log.problems] if log is not None else []
    with _progress(quiet=quiet) as progress:
        work = _Work(scorer, subjects, attempts, progress)
        if not asyncio.run(work.done_or_stopped(jobs, interrupt)):
            done = f"stopped with {len(work.results):,} of {counted(len(subjects), 'execution')} evaluated"
            raise CommandStoppedError(f"{done}; --resume goes on with it" if log is not None else done)
    if scorer.unrecorded:
        problems.append(f"{counted(scorer.unrecorded, 'evaluation')} could not be written down; free space on the disk")
    return ScoreResults([work.results[number] for number in range(len(subjects))], problems)


class _Work:
    """Executions that are being evaluated."""

    def __init__(self, scorer: Scorer, subjects: Sequence[Subject], attempts: int, progress: Progress) -> None:
        self._scorer = scorer
        self._of = len(subjects)
        self._waiting = iter(enumerate(subjects))
        self._attempts = attempts
        self._progress = progress
        self._task = progress.add_task("executions", total=len(subjects))
        self.results: dict[int, Scored] = {}

    async def done_or_stopped(self, jobs: int, interrupt: Interrupt) -> bool:
        """Return whether all are done; when this returns, nothing that was started runs any more."""
        async with asyncio.TaskGroup() as group:
            workers = {group.create_task(self._work()) for _ in range(jobs)}
            while not all(worker.done() for worker in workers) and not interrupt.asked:
                await asyncio.wait(workers, timeout=_LOOK_EVERY_S)
            for worker in workers:
                worker.cancel()
        return len(self.results) == self._of

    async def _work(self) -> None:
        for number, subject in self._waiting:
            self.results[number] = await self._scored(subject)
            self._progress.advance(self._task)

    async def _scored(self, subject: Subject) -> Scored:
        made = 0
        evaluation: Evaluation | None = None
        while evaluation is None or (not evaluation.valid and made < self._attempts):
            evaluation = await self._scorer.score(replace(subject, attempt=made))
            made += 1
            if treatment_of(subject.outcome) is not Treatment.SCORE:
                break
        return Scored(subject, evaluation, made)


def _progress(*, quiet: bool) -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
