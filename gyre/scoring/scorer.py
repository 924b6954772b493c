"""Scores executions: one attempt each within its budget, many at once, each remembered."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from typing import Final

from .evaluation import Evaluation, Evaluator, Subject
from .evaluation_log import EvaluationKey, EvaluationLog, Recorded
from .partial import PLACEHOLDER_SCORE, Treatment, treatment_of
from .result import evaluation_of, invalid
from .state import folder_reference
from .subject_form import known_of

_LOG: Final = logging.getLogger(__name__)
_PATIENCE_S: Final = 30.0  # for an evaluator that is cancelled to end what it started
NO_ARTEFACT: Final = "nothing"  # the state of an execution that left nothing


class Scorer:
    """What a cluster asks for scores. One evaluator judges; its attempts wait for a free place, hung ones until theirs
    are over: with `jobs` places and a budget of `budget_s`, n hung attempts are over after n / jobs budgets at most.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        name: str,
        budget_s: float,
        jobs: int,
        log: EvaluationLog | None = None,
    ) -> None:
        """Judge by `evaluator`.

        `name` says what judges, with all that its verdicts depend on (`identity_of`): evaluations of
        another name in `log` do not count. `budget_s` are the seconds of an attempt, `jobs` are attempts at a time.
        """
        self.unrecorded = 0  # evaluations that could not be written down
        self._evaluator = evaluator
        self._name = name
        self._budget_s = budget_s
        self._places = asyncio.Semaphore(jobs)
        self._log = log

    async def score(self, subject: Subject) -> Evaluation:
        """Make one attempt to evaluate an ended execution, or return what the same attempt gave before.

        What is not to be evaluated (`gyre.scoring.partial`) is answered at once. It raises nothing but CancelledError.
        """
        try:
            treatment = treatment_of(subject.outcome)
            if treatment is Treatment.DROP:
                return invalid(f"not evaluated: its outcome is {subject.outcome}")
            if treatment is Treatment.PLACEHOLDER or (subject.folder is None and subject.answer is None):
                return Evaluation(
                    True, PLACEHOLDER_SCORE, NO_ARTEFACT, "a placeholder: there is no artefact to evaluate"
                )
            async with self._places:
                return await self._scored(subject)
        except Exception as error:  # an evaluator, or the system, may fail in any way: a run goes on
            _LOG.exception("execution %s, attempt %d: cannot be scored", subject.execution, subject.attempt)
            return invalid(f"cannot be scored: {type(error).__name__}: {error}")

    async def _scored(self, subject: Subject) -> Evaluation:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._budget_s):
                state = await folder_reference(subject.folder) if subject.folder is not None else NO_ARTEFACT
        except TimeoutError:
            return invalid(f"the artefacts could not be read within {self._budget_s:g} s")
        except OSError as error:
            where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
            return invalid(f"the artefacts cannot be read: {where}{error.strerror or error}")
        key = EvaluationKey(subject.execution, subject.attempt, state, known_of(subject), self._name)
        known = self._log.find(key) if self._log is not None else None
        if known is not None:
            _LOG.info("execution %s, attempt %d: scored before", subject.execution, subject.attempt)
            return known
        evaluation = evaluation_of(await self._within(subject, self._budget_s - (time.monotonic() - begun)))
        evaluation = dataclasses.replace(
            evaluation, reference=evaluation.reference or state, seconds=time.monotonic() - begun
        )
        _tell(subject, evaluation)
        await self._keep(Recorded(key, evaluation, subject.outcome.value, subject.group, subject.task))
        return evaluation

    async def _within(self, subject: Subject, seconds: float) -> Evaluation:
        """Evaluate within a time; an evaluator that does not even let itself be cancelled is left behind."""
        attempt = asyncio.ensure_future(self._evaluator.evaluate(subject))
        try:
            await asyncio.wait({attempt}, timeout=seconds)
            in_time = attempt.done()
        finally:
            if not attempt.done():
                attempt.cancel()
                await asyncio.wait({attempt}, timeout=_PATIENCE_S)
        if not in_time:
            if not attempt.done():
                _LOG.error("execution %s: its evaluator goes on though it was cancelled", subject.execution)
            elif not attempt.cancelled():
                attempt.exception()  # seen; the time is over all the same
            return invalid(f"not done within the attempt's {self._budget_s:g} s")
        if attempt.cancelled():
            return invalid("the evaluator cancelled itself")
        return attempt.result()

    async def _keep(self, recorded: Recorded) -> None:
        if self._log is None:
            return
        try:
            # Even if we are cancelled now: the evaluation was made, and shall not be made again.
            await asyncio.shield(asyncio.to_thread(self._log.append, recorded))
        except OSError as error:
            self.unrecorded += 1
            _LOG.error("execution %s: its evaluation cannot be recorded: %s", recorded.key.execution, error)


def _tell(subject: Subject, evaluation: Evaluation) -> None:
    if evaluation.valid:
        _LOG.info(
            "execution %s, attempt %d: score %g after %.1f s",
            *(subject.execution, subject.attempt, evaluation.score, evaluation.seconds),
        )
    else:
        _LOG.warning(
            "execution %s, attempt %d: no valid evaluation after %.1f s: %s",
            *(subject.execution, subject.attempt, evaluation.seconds, evaluation.reason),
        )
