"""Executions in hand: each is run and evaluated by a task of its own, and what becomes of it is an event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from gyre import commands as cmd
from gyre import events as ev
from gyre.errors import InputError
from gyre.scoring.evaluation import Evaluation, event_checks

from .book import RunBook
from .ports import Assignment, Ended, Ports, Reports, SamplesLostError

Fail = Callable[[str, BaseException], None]
_log = logging.getLogger(__name__)


class Desk:
    """Carries out the commands about executions. `fail` ends the run: samples that cannot be kept cannot be trained."""

    def __init__(self, ports: Ports, book: RunBook, report: Reports, fail: Fail) -> None:
        self._ports = ports
        self._book = book
        self._report = report
        self._fail = fail
        self._tasks: dict[int, set[asyncio.Task[None]]] = {}  # by execution: attempts to score may overlap
        self._ending: dict[int, set[asyncio.Task[None]]] = {}  # were cancelled, and end what they began

    def start(self, command: cmd.StartExecution) -> None:
        """Run an execution."""
        assignment = self._book.executions[command.execution]
        self._begin(command.execution, self._run(assignment))

    def score(self, command: cmd.ScoreExecution) -> None:
        """Evaluate what an execution left; an earlier attempt that still goes on may yet come first."""
        assignment = self._book.executions[command.execution]
        self._begin(command.execution, self._score(assignment, command.attempt))

    def cancel(self, execution: int, reason: str) -> None:
        """Stop an execution, or its evaluations; nothing more is heard of it."""
        tasks = self._tasks.pop(execution, set())
        for task in tasks:
            task.cancel(reason)
        if tasks:
            self._ending.setdefault(execution, set()).update(tasks)
            _log.info("an execution is cancelled", extra={"execution": execution, "reason": reason})

    async def stop(self) -> None:
        """Stop all, and wait until nothing of them runs."""
        for execution in list(self._tasks):
            self.cancel(execution, "the run stops")
        await self.ended(list(self._ending))

    async def ended(self, executions: Iterable[int]) -> None:
        """Wait until nothing runs of executions that were cancelled: a harness has its time to end by itself.

        They are never cancelled twice, which would leave a harness behind that is about to be killed.
        """
        tasks = [task for execution in executions for task in self._ending.get(execution, ())]
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self, execution: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"execution {execution}")
        self._tasks.setdefault(execution, set()).add(task)
        task.add_done_callback(lambda done: self._done(execution, done))

    def _done(self, execution: int, task: asyncio.Task[None]) -> None:
        for of_execution in (self._tasks, self._ending):
            tasks = of_execution.get(execution, set())
            tasks.discard(task)
            if not tasks:
                of_execution.pop(execution, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"execution {execution}", error)

    async def _run(self, assignment: Assignment) -> None:
        number, report = assignment.execution, self._report

        def started() -> None:
            report(ev.ExecutionStarted(report.now_s, number, self._book.published_version))

        try:
            ended = await self._ports.rollouts.run(assignment, started)
        except Exception as error:
            reason = one_line(error)
            _log.warning("an execution is lost", extra={"execution": number, "reason": reason}, exc_info=error)
            report(ev.ExecutionLost(report.now_s, number, reason))
            return
        _log.info("an execution has ended", extra={"execution": number, "reason": ended.outcome.value})
        report(ev.ExecutionFinished(report.now_s, number, ended.outcome, ended.version_tokens, ended.tool_calls))

    async def _score(self, assignment: Assignment, attempt: int) -> None:
        number, report = assignment.execution, self._report
        ended = self._ports.rollouts.ended(number)
        if ended is None:
            evaluation = Evaluation(False, None, reason="what it left is gone")
        else:
            evaluation = await self._evaluated(assignment, ended, attempt)
        kept: tuple[int, ...] = ()
        if ended is not None and evaluation.valid:
            try:  # before the event: a score in the journal always has its samples
                kept = await self._ports.samples.keep(assignment, ended, evaluation)
            except SamplesLostError as error:
                evaluation = Evaluation(False, None, reason=one_line(error))
        extra = {"execution": number, "seconds": round(evaluation.seconds, 3), "reason": evaluation.reason or None}
        _log.info("an execution is evaluated", extra=extra)
        if evaluation.valid:
            self._end_others(number)
        report(
            ev.ExecutionScored(
                report.now_s,
                number,
                evaluation.valid,
                evaluation.score,
                kept,
                attempt,
                _encodable(evaluation.reason),
                _encodable(evaluation.reference),
                tuple((_encodable(name), passed) for name, passed in event_checks(evaluation)),
            )
        )

    def _end_others(self, execution: int) -> None:
        """End the other attempts to evaluate an execution: it has its score."""
        tasks = self._tasks[execution]
        others = tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            tasks -= others
            self._ending.setdefault(execution, set()).update(others)

    async def _evaluated(self, assignment: Assignment, ended: Ended, attempt: int) -> Evaluation:
        try:
            return await self._ports.evaluations.evaluate(assignment, ended, attempt, self._book.version)
        except Exception as error:
            _log.warning("an evaluator failed", extra={"execution": assignment.execution}, exc_info=error)
            return Evaluation(False, None, reason=one_line(error))


def one_line(error: BaseException) -> str:
    """Return an error in one line of at most 300 characters."""
    text = _encodable(" ".join(str(error).split())[:300])
    return (
        text if isinstance(error, InputError) else f"{type(error).__name__}: {text}" if text else type(error).__name__
    )


def _encodable(text: str) -> str:
    """Return a text of others as the journal can hold it: half a surrogate pair has no UTF-8."""
    return text.encode("utf-8", "replace").decode()
