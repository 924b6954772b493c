"""The members of groups: how they end, are scored, replaced or cancelled, and when their group is ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from . import commands as cmd
from . import events as ev
from .controller_settings import ControllerSettings
from .group_settings import OnLoss
from .groups import Execution, ExecutionState, Group, GroupState
from .outbox import Outbox
from .pool import Pool
from .score_timer import ScoreTimer
from .scoring.partial import PLACEHOLDER_SCORE, Treatment, treatment_of

_UNSETTLED: Final = frozenset({ExecutionState.QUEUED, ExecutionState.RUNNING, ExecutionState.SCORING})


class Members:
    """Takes what is reported of executions and settles their groups.

    `ready` is called with each group of which every member ended and holds a valid score or was dropped; `dropped` with
    each that will never be ready, and why.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        pool: Pool,
        out: Outbox,
        ready: Callable[[Group], None],
        dropped: Callable[[Group, str], None],
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._out = out
        self._ready = ready
        self._dropped = dropped

    # Events

    def started(self, event: ev.ExecutionStarted) -> None:
        """The harness of an execution is running."""
        execution = self._pool.execution(event.execution)
        if execution is not None:
            execution.started_s = event.time_s

    def finished(self, event: ev.ExecutionFinished) -> None:
        """An execution ended: score what it left, let a placeholder stand for it, or drop it."""
        execution = self._running(event.execution)
        if execution is None:
            return
        execution.version_tokens = event.version_tokens
        self._pool.end(execution)
        match treatment_of(event.outcome):
            case Treatment.DROP:
                self._settle(execution, ExecutionState.DROPPED)
            case Treatment.PLACEHOLDER:
                execution.score = PLACEHOLDER_SCORE
                self._settle(execution, ExecutionState.SCORED)
            case Treatment.SCORE:
                execution.move(ExecutionState.SCORING)
                self._score(execution)
                self._all_ended(self._pool.groups[execution.group])

    def scored(self, event: ev.ExecutionScored) -> None:
        """An evaluation came back. A valid one counts though a later attempt is awaited, a failed one then does not."""
        execution = self._pool.execution(event.execution)
        if execution is None or execution.state is not ExecutionState.SCORING:
            return
        if event.valid:
            execution.score, execution.sample_tokens = event.score, event.sample_tokens
            self._settle(execution, ExecutionState.SCORED)
        elif event.attempt == execution.attempt:
            self._score_failed(execution)

    def timer(self, name: str) -> bool:
        """Take a timer of an evaluation: if that is still awaited, it failed. Return whether it was one."""
        timer = ScoreTimer.named(name)
        if timer is None:
            return False
        execution = self._pool.execution(timer.execution)
        if execution is not None and execution.state is ExecutionState.SCORING and execution.attempt == timer.attempt:
            self._score_failed(execution)
        return True

    def lost(self, event: ev.ExecutionLost) -> None:
        """An execution ended without anything to score."""
        execution = self._running(event.execution)
        if execution is not None:
            self._pool.end(execution)
            self._settle(execution, ExecutionState.DROPPED)

    def resume(self) -> None:
        """Command again what the cluster forgot: running executions start from scratch, open evaluations are made."""
        members = [member for group in self._pool.groups.values() for member in group.members]
        for member in members:
            if member.state is ExecutionState.RUNNING:
                member.started_s = None
                self._out.put(cmd.StartExecution, member.execution)
        for member in members:
            if member.state is ExecutionState.SCORING:
                self._score(member)

    # Scores

    def _running(self, number: int) -> Execution | None:
        execution = self._pool.execution(number)
        return execution if execution is not None and execution.state is ExecutionState.RUNNING else None

    def _score(self, execution: Execution) -> None:
        self._out.put(cmd.ScoreExecution, execution.execution, execution.attempt)
        if self._settings.score_timeout_s is not None:
            timer = ScoreTimer(execution.execution, execution.attempt)
            self._out.put(cmd.SetTimer, timer.name, self._out.time_s + self._settings.score_timeout_s)

    def _score_failed(self, execution: Execution) -> None:
        execution.attempt += 1
        if execution.attempt < self._settings.score_attempts:
            self._score(execution)
        else:
            self._settle(execution, ExecutionState.DROPPED)

    # Groups

    def _settle(self, execution: Execution, state: ExecutionState) -> None:
        """Record an execution's last state, and what follows for its group."""
        group, settings = self._pool.settle(execution, state), self._settings
        equal_after = settings.groups.cancel_equal_after
        if equal_after is not None and group.scored_members >= equal_after and group.equal_scores:
            self._drop(group, "zero variance")
            return
        missing = settings.group_size - group.scored_members - group.unscored_members
        if missing > 0:
            missing -= self._replace(group, missing)
        if group.scored_members >= settings.group_size:
            self._cancel_rest(group, "its group has enough members")
            self._ready(group)
        elif missing > 0 and settings.groups.on_loss is OnLoss.WAIT:
            self._drop(group, "lost members that cannot be replaced")
        elif group.unscored_members > 0:
            self._all_ended(group)
        elif group.scored_members < min(settings.min_group_members, settings.group_size):
            self._drop(group, "too few valid scores")
        elif equal_after is not None and group.equal_scores:
            self._drop(group, "zero variance")
        else:
            self._ready(group)

    def _all_ended(self, group: Group) -> None:
        if group.open_members == 0 and group.state is GroupState.RUNNING:
            group.move(GroupState.SCORING)

    def _replace(self, group: Group, missing: int) -> int:
        """Add executions for `missing` members, as many as are allowed; return how many."""
        most = self._settings.groups.replacements(self._settings.group_size)
        count = min(missing, most - group.replaced)
        if count > 0:
            added = self._pool.replace(group, count)
            self._out.put(cmd.AddExecutions, group.group, tuple(member.execution for member in added))
        return count

    def _drop(self, group: Group, reason: str) -> None:
        self._cancel_rest(group, f"its group is dropped: {reason}")
        self._dropped(group, reason)

    def _cancel_rest(self, group: Group, reason: str) -> None:
        """Cancel every member that is not settled; what is reported of it later changes nothing."""
        if group.unscored_members == 0:
            return
        for member in group.members:
            if member.state in _UNSETTLED:
                self._pool.cancel(member)
                self._out.put(cmd.CancelExecution, member.execution, reason)
