"""What a journal says of executions and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from .. import commands as cmd
from .. import events as ev
from ..score_timer import ScoreTimer
from .execution_log import ExecutionRow
from .group_log import GroupRow
from .level_log import LevelLog


class RolloutBook:
    """All executions and groups so far.

    `handlers` take (now_s, entry); they raise KeyError for an id that nobody dispatched.
    """

    def __init__(self, levels: LevelLog, problems: Counter[str]) -> None:
        self.executions: dict[int, ExecutionRow] = {}
        self.groups: dict[int, GroupRow] = {}
        self.levels = levels
        self.problems = problems
        self.names_tasks = True  # set by the journal's version
        self.handlers: dict[type, Callable[[float, Any], None]] = {
            ev.ExecutionStarted: self._execution_started,
            ev.ExecutionFinished: self._execution_finished,
            ev.ExecutionScored: self._execution_scored,
            ev.ExecutionLost: self._execution_lost,
            ev.RunResumed: self._run_resumed,
            ev.Timer: self._timer,
            cmd.DispatchGroup: self._dispatch_group,
            cmd.AddExecutions: self._add_executions,
            cmd.StartExecution: self._start_execution,
            cmd.CancelExecution: self._cancel_execution,
            cmd.ScoreExecution: self._score_execution,
            cmd.DropGroup: self._drop_group,
        }

    def take(self, now_s: float, number: int, step: int, tokens: int) -> GroupRow:
        """Give a group's micro-steps of `tokens` in all to `step`; return the group."""
        group = self.groups[number]
        if group.open:
            self.problems["group trained before it was ready"] += 1
        self.levels.ready_groups -= group.is_ready
        group.taken_s = now_s if group.taken_s is None else group.taken_s
        group.step_taken = step if group.step_taken is None else group.step_taken
        group.trained_tokens = tokens + (group.trained_tokens if group.step_trained == step else 0)
        group.step_trained = step
        self.levels.note(now_s)
        return group

    def _dispatch_group(self, now_s: float, entry: cmd.DispatchGroup) -> None:
        if entry.group in self.groups:
            self.problems["group dispatched twice"] += 1
            return
        task = entry.task if self.names_tasks else None
        group = GroupRow(group=entry.group, version=entry.version, dispatched_s=now_s, task=task)
        self.groups[entry.group] = group
        self._join(now_s, group, entry.executions)

    def _add_executions(self, now_s: float, entry: cmd.AddExecutions) -> None:
        group = self.groups[entry.group]
        self.levels.ready_groups -= group.is_ready
        if group.taken_s is None:
            group.ready_s = None
        self._join(now_s, group, entry.executions)

    def _join(self, now_s: float, group: GroupRow, executions: tuple[int, ...]) -> None:
        for execution in executions:
            row = ExecutionRow(execution=execution, group=group, dispatched_s=now_s)
            self.executions[execution] = row
            group.members.append(row)
        group.open += len(executions)
        self.levels.water_level += len(executions)
        self.levels.note(now_s)

    def _run_resumed(self, now_s: float, entry: ev.RunResumed) -> None:
        """Nothing runs any more; what is open is commanded again. Updates from `version` on are to be made again."""
        for row in self.executions.values():
            row.interrupted = row.open
            row.asked = row.running = False
        self.levels.running = 0
        for group in self.groups.values():
            if group.step_trained is not None and group.step_trained >= entry.version:
                group.consumed_s = None
        self.levels.note(now_s)

    def _start_execution(self, now_s: float, entry: cmd.StartExecution) -> None:
        row = self.executions[entry.execution]
        if row.asked:
            self.problems["execution told to start twice"] += 1
        row.asked = True

    def _execution_started(self, now_s: float, entry: ev.ExecutionStarted) -> None:
        row = self.executions[entry.execution]
        if row.ended and row.lost_reason is None:
            self.problems["execution started after its end"] += 1
            return
        if not row.asked and not row.given_up:
            self.problems["execution started by itself"] += 1
        if row.ended:  # it was lost, and is tried again
            row.ended, row.ended_s, row.lost_reason = False, None, None
            self.levels.water_level += 1
        self._set_open(now_s, row, True)
        if row.running:
            self.problems["execution started twice"] += 1
        else:
            row.running = True
            self.levels.running += 1
        row.asked = False
        row.started_s = now_s if row.started_s is None else row.started_s
        row.version_started = entry.version if row.version_started is None else row.version_started
        row.attempts += 1
        self.levels.note(now_s)

    def _execution_finished(self, now_s: float, entry: ev.ExecutionFinished) -> None:
        row = self.executions[entry.execution]
        if not row.running and not row.given_up:
            self.problems["execution finished that did not run"] += 1
        row.outcome, row.version_tokens, row.tool_calls = entry.outcome, entry.version_tokens, entry.tool_calls
        row.finished_s = now_s
        self._end(now_s, row)

    def _score_execution(self, now_s: float, entry: cmd.ScoreExecution) -> None:
        row = self.executions[entry.execution]
        if row.open and not row.interrupted:
            self.problems["execution to be scored twice, or while it runs"] += 1
        row.interrupted = False
        row.scoring_attempt = entry.attempt
        self._set_open(now_s, row, True)
        self.levels.note(now_s)

    def _timer(self, now_s: float, entry: ev.Timer) -> None:
        """An evaluation that did not come back in time failed; if another is tried, its command follows."""
        timer = ScoreTimer.named(entry.name)
        if timer is None:
            return
        row = self.executions[timer.execution]
        if row.open and row.ended and row.scoring_attempt == timer.attempt:
            self._set_open(now_s, row, False)
            self.levels.note(now_s)

    def _execution_scored(self, now_s: float, entry: ev.ExecutionScored) -> None:
        row = self.executions[entry.execution]
        if not row.open and not row.given_up:
            self.problems["execution scored without a call"] += 1
        row.scored_s, row.valid, row.score = now_s, entry.valid, entry.score
        row.sample_tokens = sum(entry.sample_tokens)
        row.evaluations += 1
        row.failed_checks = tuple(name for name, passed in entry.checks if passed < 1.0)
        self._set_open(now_s, row, False)
        self.levels.note(now_s)

    def _execution_lost(self, now_s: float, entry: ev.ExecutionLost) -> None:
        row = self.executions[entry.execution]
        row.lost_reason = row.lost_reason or entry.reason
        row.finished_s = now_s if row.finished_s is None else row.finished_s
        self._end(now_s, row)

    def _cancel_execution(self, now_s: float, entry: cmd.CancelExecution) -> None:
        row = self.executions[entry.execution]
        if row.open:
            row.lost_reason = row.lost_reason or entry.reason
            self._end(now_s, row)

    def _drop_group(self, now_s: float, entry: cmd.DropGroup) -> None:
        group = self.groups[entry.group]
        self.levels.ready_groups -= group.is_ready
        group.dropped_reason = entry.reason
        for row in group.members:
            self._end(now_s, row)
        self.levels.note(now_s)

    def _end(self, now_s: float, row: ExecutionRow) -> None:
        """The execution holds no place any more, whatever is still done with what it left."""
        if not row.ended:
            row.ended, row.ended_s = True, now_s
            self.levels.water_level -= 1
        if row.running:
            row.running = False
            self.levels.running -= 1
        row.asked = False
        self._set_open(now_s, row, False)
        self.levels.note(now_s)

    def _set_open(self, now_s: float, row: ExecutionRow, is_open: bool) -> None:
        if row.open is is_open:
            return
        group = row.group
        was_ready = group.is_ready
        row.open = is_open
        group.open += 1 if is_open else -1
        self.levels.ready_groups += group.is_ready - was_ready
        if group.open == 0 and group.taken_s is None:
            group.ready_s = now_s
        elif group.taken_s is None:
            group.ready_s = None
