"""Rollouts whose harness is a command."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from gyre.outcome import Outcome

from .attempts import Attempt, Attempts
from .gateway import CallFigures, Endpoint, Gateway
from .harness_command import LOST_EXIT_CODE, HarnessCommand, environment_of, values_of
from .harness_process import HarnessProcess, allow_open_files
from .ports import Assignment, Ended
from .process_sweep import ProcessSweep
from .tasks import Task
from .worker import to_its_end

_log = logging.getLogger(__name__)


class ExecutionFailedError(Exception):
    """An execution ended through no doing of its harness: there is nothing to learn from it."""


class CommandRollouts:
    """Runs each execution as a command in a working folder of its own, with its own home, session and limits.

    How an execution ends:

    ==============================  =====================================================
    exit code 0                     completed, or harness_timeout where it was told to stop
    another exit code               agent_error: what it left is scored
    exit code 75, or a signal       lost: the machine failed, not the agent
    set-up fails                    env_setup_failed
    harness time-out                harness_timeout, also where it had to be killed
    overall time-out                overall_timeout
    ==============================  =====================================================

    With `keep_folders` the folders of executions stay when their group is trained or dropped.
    """

    def __init__(
        self, command: HarnessCommand, gateway: Gateway, attempts: Attempts, *, keep_folders: bool = False
    ) -> None:
        """Take a command.

        Raises:
            InputError: it cannot be started.
        """
        command.check()
        self._command = command
        self._gateway = gateway
        self._attempts = attempts
        self._keep_folders = keep_folders
        self._sweep = ProcessSweep()

    def ended(self, execution: int) -> Ended | None:
        """See `Rollouts.ended`."""
        return self._attempts.ended(execution)

    async def run(self, assignment: Assignment, started: Callable[[], None]) -> Ended:
        """See `Rollouts.run`."""
        before = self.ended(assignment.execution)
        if before is not None:
            _log.info("an execution had ended before", extra={"execution": assignment.execution})
            started()
            return before
        attempt = self._attempts.next(assignment.execution)
        await to_its_end(asyncio.to_thread(attempt.make, assignment.task))  # a folder is deleted when it is whole
        deadline_s = _after(self._command.overall_timeout_s)
        outcome = await self._set_up(attempt, assignment.task, deadline_s)
        endpoint = self._gateway.open(
            attempt.name,
            group=str(assignment.group),
            harness=self._command.name,
            task=assignment.task.name,
            seconds=self._command.harness_timeout_s,
        )
        try:
            if outcome is None:
                outcome = await self._outcome(attempt, assignment.task, endpoint, deadline_s, started)
        except BaseException:
            await to_its_end(self._gateway.end(attempt.name, Outcome.CANCELLED))
            raise
        return await to_its_end(self._ended(attempt, outcome))

    async def _ended(self, attempt: Attempt, outcome: Outcome | None) -> Ended:
        """Record how an attempt ended; its calls are recorded before."""
        outcome = await self._gateway.end(attempt.name, outcome)
        calls = await self._gateway.calls(attempt.name)
        figures = CallFigures.of(calls)
        ended = Ended(
            outcome=outcome,
            calls=attempt.name,
            folder=attempt.work,
            version_tokens=figures.version_tokens,
            tool_calls=figures.tool_calls,
            steps=figures.steps,
            recorded=len(calls),
        )
        await asyncio.to_thread(attempt.end, ended)
        return ended

    async def _set_up(self, attempt: Attempt, task: Task, deadline_s: float | None) -> Outcome | None:
        """Run the set-up, which has no model to call; None where it went well."""
        if not self._command.setup:
            return None
        try:
            async with asyncio.timeout_at(deadline_s) as limit:
                process = await self._start(attempt, self._command.setup, task, Endpoint("", ""))
                failed = await self._waited(attempt, process)
        except TimeoutError:
            if not limit.expired():
                raise
            return Outcome.OVERALL_TIMEOUT
        return Outcome.ENV_SETUP_FAILED if failed else None

    async def _outcome(
        self, attempt: Attempt, task: Task, endpoint: Endpoint, deadline_s: float | None, started: Callable[[], None]
    ) -> Outcome | None:
        """Run the harness; None where it ended by itself and well."""
        command = self._command
        timeout_s = None if command.harness_timeout_s is None else command.harness_timeout_s + command.farewell_s
        try:
            async with asyncio.timeout_at(deadline_s) as overall, asyncio.timeout(timeout_s) as own:
                process = await self._start(attempt, command.command, task, endpoint)
                started()
                code = await self._waited(attempt, process)
        except TimeoutError:
            if not (overall.expired() or own.expired()):
                raise
            return Outcome.OVERALL_TIMEOUT if overall.expired() else Outcome.HARNESS_TIMEOUT
        if code < 0 or code == LOST_EXIT_CODE:
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            raise ExecutionFailedError(f"the harness ended by {how}")
        return Outcome.AGENT_ERROR if code else None

    async def _start(self, attempt: Attempt, argv: tuple[str, ...], task: Task, endpoint: Endpoint) -> HarnessProcess:
        values = values_of(self._command, task, attempt.name, attempt.folder, endpoint)
        return await HarnessProcess.start(
            self._command.filled(argv, values),
            folder=attempt.work,
            environment=environment_of(self._command, values, attempt.folder),
            output=attempt.folder / "output.log",
            record=attempt.process,
            limits=self._command.limits,
        )

    async def _waited(self, attempt: Attempt, process: HarnessProcess) -> int:
        """Wait for a command's end; nothing that it started is left then, however this ends."""
        grace_s = self._command.grace_s
        try:
            code = await process.wait()
            grace_s = 0.0
            return code
        finally:
            await to_its_end(self._end(attempt, process, grace_s))

    async def _end(self, attempt: Attempt, process: HarnessProcess, grace_s: float) -> None:
        await process.ask_to_end(grace_s)
        await self._sweep.end(process.mark, attempt.variable)
        process.reap()

    def clear(self, executions: Collection[int]) -> None:
        """See `Rollouts.clear`."""
        if not self._keep_folders:
            asyncio.get_running_loop().run_in_executor(None, self._attempts.remove, tuple(executions))

    async def recover(self, live: Collection[int]) -> None:
        """See `Rollouts.recover`."""
        allow_open_files()
        await asyncio.to_thread(self._recover, frozenset(live))

    def _recover(self, live: frozenset[int]) -> None:
        left = self._attempts.end_leftovers()
        if left:
            _log.warning("%d processes that a killed run had left are ended", left)
        if not self._keep_folders:
            self._attempts.remove([one for one in self._attempts.executions() if one not in live])


def _after(seconds: float | None) -> float | None:
    """Return the time of the loop's clock after so many seconds from now."""
    return None if seconds is None else asyncio.get_running_loop().time() + seconds
