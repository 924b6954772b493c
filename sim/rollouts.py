"""The simulated executions: start, end, score, and which weight version sampled how many tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gyre.arrays import row_sums
from gyre.commands import AddExecutions, DispatchGroup
from gyre.draws import uniform
from gyre.events import ExecutionFinished, ExecutionScored, ExecutionStarted
from gyre.outcome import Outcome

from .context import Context
from .evaluators import Evaluators
from .sampler import GroupSampler
from .serving import Ended, EndReason

_SCORE_DRAW: Final = 102
_HANG_DRAW: Final = 104
_OUTCOMES: Final = tuple(Outcome)


@dataclass(slots=True)
class _Rollout:
    row: int  # of the program
    outcome: Outcome = Outcome.COMPLETED
    generated_tokens: int = 0
    version_tokens: list[tuple[int, int]] = field(default_factory=list)

    def count(self, version: int, generated_tokens: int) -> None:
        """Credit the tokens sampled since the last count to `version`."""
        if generated_tokens > self.generated_tokens:
            self.version_tokens.append((version, generated_tokens - self.generated_tokens))
            self.generated_tokens = generated_tokens


class Rollouts:
    """Executions in flight, by number, and those that wait for a score."""

    def __init__(self, context: Context, sampler: GroupSampler) -> None:
        self._context = context
        self._sampler = sampler
        self._evaluators = Evaluators(context)
        self._rollouts: dict[int, _Rollout] = {}
        self._tasks: dict[int, int] = {}  # of groups that may get more executions
        settings = context.settings
        self._size = settings.training.group_size
        self._stride = settings.groups.stride(self._size)
        self._running: dict[int, None] = {}  # in the serving model, by start
        self._output_tokens = row_sums(context.program.output_tokens, context.program.call_start)
        self.version = 0  # weights that the engines serve

    def dispatch(self, command: DispatchGroup) -> None:
        """Assign a row of the program to each execution of a group."""
        rows = self._sampler.rows(command.group, command.task)
        for execution, row in zip(command.executions, rows, strict=False):
            self._rollouts[execution] = _Rollout(int(row))
        if self._stride > self._size:
            self._tasks[command.group] = command.task
            self._add_extra(command.group, command.executions[self._size :])

    def add(self, command: AddExecutions) -> None:
        """Assign rows to executions that take the places of lost ones."""
        self._add_extra(command.group, command.executions)

    def _add_extra(self, group: int, executions: Iterable[int]) -> None:
        for execution in executions:
            row = self._sampler.extra_row(group, self._tasks[group], execution % self._stride)
            self._rollouts[execution] = _Rollout(row)

    def forget(self, group: int) -> None:
        """Nothing more is asked of a group: forget its executions that never got a score, too."""
        self._tasks.pop(group, None)
        for execution in range(group * self._stride, (group + 1) * self._stride):
            self._rollouts.pop(execution, None)

    def start(self, execution: int) -> None:
        """Set up and run an execution."""
        context, rollout = self._context, self._rollouts[execution]
        rollout.outcome = _OUTCOMES[context.program.outcome[rollout.row]]
        setup_s = float(context.program.setup_s[rollout.row])
        context.report(ExecutionStarted(context.now_s, execution, self.version))
        if rollout.outcome is Outcome.ENV_SETUP_FAILED:
            context.after(setup_s, lambda _: self._setup_failed(execution))
            return
        limits, now = context.settings.limits, context.now_s
        self._running[execution] = None
        context.model.start(
            execution,
            rollout.row,
            setup_s=setup_s,
            harness_deadline_s=now + (limits.harness_timeout_s or math.inf),
            overall_deadline_s=now + (limits.overall_timeout_s or math.inf),
        )

    def _setup_failed(self, execution: int) -> None:
        if execution in self._rollouts:
            self._context.report(ExecutionFinished(self._context.now_s, execution, Outcome.ENV_SETUP_FAILED, ()))

    def ended(self, ended: Ended) -> None:
        """The serving model ran an execution to its end, or to a time-out."""
        rollout = self._rollouts[ended.execution]
        del self._running[ended.execution]
        rollout.count(self.version, ended.generated_tokens)
        if ended.reason is EndReason.HARNESS_TIMEOUT:
            rollout.outcome = Outcome.HARNESS_TIMEOUT
        elif ended.reason is EndReason.OVERALL_TIMEOUT:
            rollout.outcome = Outcome.OVERALL_TIMEOUT
        tokens = tuple(rollout.version_tokens)
        calls = self._tool_calls(rollout)
        self._context.report(
            ExecutionFinished(self._context.now_s, ended.execution, _reported(rollout.outcome), tokens, calls)
        )

    def cancel(self, execution: int) -> None:
        """Stop an execution; nothing more is reported of it."""
        self._rollouts.pop(execution, None)
        if execution in self._running:
            del self._running[execution]
            self._context.model.cancel(execution)

    def published(self, version: int) -> None:
        """Engines serve `version` from now on: credit what was sampled so far to the one before."""
        running = list(self._running)
        for execution, tokens in zip(running, self._context.model.generated_tokens(running), strict=True):
            self._rollouts[execution].count(self.version, int(tokens))
        self.version = version

    # Scores

    def score(self, execution: int, attempt: int) -> None:
        """Evaluate a finished execution; the result comes after its scoring time, or never."""
        if self._drawn(_HANG_DRAW, self._context.settings.faults.score_hang_rate, execution, attempt):
            return
        scoring_s = float(self._context.program.scoring_s[self._rollouts[execution].row])
        self._evaluators.evaluate(scoring_s, lambda: self._scored(execution, attempt))

    def _scored(self, execution: int, attempt: int) -> None:
        context, rollout = self._context, self._rollouts.get(execution)
        if rollout is None:
            return  # cancelled meanwhile
        rate = context.settings.faults.score_failure_rate
        if rollout.outcome is Outcome.SCORE_FAILED or self._drawn(_SCORE_DRAW, rate, execution, attempt):
            context.report(ExecutionScored(context.now_s, execution, False, None, (), attempt, "failed"))
            return
        reward = float(context.program.reward[rollout.row])
        score = None if math.isnan(reward) else reward
        samples = self._sample_tokens(rollout)
        del self._rollouts[execution]
        context.report(ExecutionScored(context.now_s, execution, True, score, samples, attempt))

    def _drawn(self, kind: int, rate: float, execution: int, attempt: int) -> bool:
        return rate > 0 and uniform(self._context.settings.seed, kind, execution, attempt) < rate

    def _tool_calls(self, rollout: _Rollout) -> int:
        """Calls of the model that follow another of their thread; of an execution cut short, a share like its tokens'.

        A thread's first call answers no tool; every later one is taken to answer one.
        """
        program, row = self._context.program, rollout.row
        calls = int(program.call_start[row + 1] - program.call_start[row] - program.thread_count[row])
        return math.floor(calls * self._done(rollout))

    def _done(self, rollout: _Rollout) -> float:
        """Share of the recorded tokens that an execution sampled."""
        return min(1.0, rollout.generated_tokens / max(1, int(self._output_tokens[rollout.row])))

    def _sample_tokens(self, rollout: _Rollout) -> tuple[int, ...]:
        """Lengths of the selected paths; those of an execution that was cut short shrink with what it sampled."""
        program = self._context.program
        paths = program.path_tokens[program.path_start[rollout.row] : program.path_start[rollout.row + 1]]
        share = self._done(rollout)
        return tuple(math.ceil(tokens * share) for tokens in paths.tolist()) if share > 0 else ()


def _reported(outcome: Outcome) -> str:
    """An evaluation that fails is found when it is tried: until then the execution has simply completed."""
    return Outcome.COMPLETED if outcome is Outcome.SCORE_FAILED else outcome
