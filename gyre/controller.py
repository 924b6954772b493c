"""The scheduler: events in, commands out. It owns groups, versions and bursts; it has no clock and does no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from . import commands as cmd
from . import events as ev
from .checked_policy import CheckedPolicy
from .cluster import CellKind, CellRole, CellState
from .errors import InputError
from .fleet import Fleet
from .groups import Execution, ExecutionState, Group, GroupState, IllegalMoveError
from .policies.base import Policy
from .pool import Pool
from .step import Step, StepPhase, pack
from .view import View

_DROPPED_AT_END: Final = frozenset({"overall_timeout", "cancelled"})
_NOTHING_TO_SCORE: Final = "env_setup_failed"  # a placeholder of reward 0 stands for it
_MOST_BARREN_BOUNDARIES: Final = 100
_FEWEST_EVENTS_TO_GIVE_UP: Final = 100_000
_MOST_EVENTS_OF_AN_EXECUTION: Final = 200


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the controller has to know of a run besides its policy."""

    steps: int  # updates to make
    groups_per_step: int  # B
    group_size: int  # N
    micro_step_tokens: int = 65_536  # most tokens in a micro-step (a longer sample is one of its own)
    score_attempts: int = 3  # evaluations tried before an execution is dropped
    min_group_members: int = 2  # fewer valid members give no group-relative advantage: the group is dropped


class Controller:
    """Sans-IO scheduler of one run.

    `handle(event)` is the whole interface: it returns the commands that the event causes, in the order in which a
    cluster must carry them out. The same events give the same commands.
    """

    def __init__(self, settings: ControllerSettings, policy: Policy) -> None:
        self.settings = settings
        self.policy = policy
        self.time_s = 0.0
        self.version = 0  # updates applied; the step in training makes version + 1
        self.published_version = 0
        self.at_boundary = False
        self.burst_steps = 0
        self.stopped = False
        self.fleet = Fleet()
        self.pool = Pool(settings.group_size)
        self.step = Step()
        self._policy = CheckedPolicy(policy, View(self))
        self._out: list[cmd.Command] = []
        self._barren_boundaries = 0
        self._events_without_update = 0
        in_flight = (
            policy.settings.depth_groups(settings.groups_per_step) + settings.groups_per_step
        ) * settings.group_size
        self._most_events_without_update = _FEWEST_EVENTS_TO_GIVE_UP + _MOST_EVENTS_OF_AN_EXECUTION * in_flight
        self._wake_s: float | None = None
        self._handlers: dict[type[ev.Event], Callable[[Any], None]] = {
            ev.RunStarted: self._run_started,
            ev.ExecutionStarted: self._execution_started,
            ev.ExecutionFinished: self._execution_finished,
            ev.ExecutionScored: self._execution_scored,
            ev.ExecutionLost: self._execution_lost,
            ev.LoadReport: lambda event: None,
            ev.CellChanged: self._cell_changed,
            ev.CellFailed: self._cell_failed,
            ev.CellJoined: self._cell_joined,
            ev.MicroStepClaimed: self._micro_step_claimed,
            ev.MicroStepDone: self._micro_step_done,
            ev.UpdateApplied: self._update_applied,
            ev.WeightsPublished: self._weights_published,
            ev.Timer: self._timer,
        }

    def handle(self, event: ev.Event) -> list[cmd.Command]:
        """Take one event; return the commands that it causes.

        Raises:
            IllegalMoveError: the event contradicts what was reported before.
            InputError: the policy asks for what cannot be, or every group is dropped so that no step can be made.
        """
        self.time_s = event.time_s
        self._out = []
        if not self.stopped:
            self._handlers[type(event)](event)
            self._count_event()
            if not isinstance(event, ev.LoadReport) and not self.stopped:
                self._settle()
        return self._out

    def _count_event(self) -> None:
        """Refuse to go on for ever: a step needs tens of events for each execution, not thousands."""
        self._events_without_update += 1
        if self._events_without_update > self._most_events_without_update:
            raise InputError(
                f"policy {self.policy.name}: no update after {self._events_without_update} events, in step "
                f"{self.version}; it moves cells back and forth, or dispatches without ever training"
            )

    # Events

    def _run_started(self, event: ev.RunStarted) -> None:
        if not event.cells or event.cells[0].kind is not CellKind.CORE:
            raise InputError("a run needs cells, the core first")
        self.fleet.start(event.cells)
        self.at_boundary = True

    def _execution_started(self, event: ev.ExecutionStarted) -> None:
        execution = self.pool.execution(event.execution)
        if execution is not None:
            execution.started_s = event.time_s

    def _execution_finished(self, event: ev.ExecutionFinished) -> None:
        execution = self._running(event.execution)
        if execution is None:
            return
        execution.version_tokens = event.version_tokens
        self.pool.end(execution)
        if event.outcome in _DROPPED_AT_END:
            self._settle_execution(execution, ExecutionState.DROPPED)
        elif event.outcome == _NOTHING_TO_SCORE:
            execution.score = 0.0
            self._settle_execution(execution, ExecutionState.SCORED)
        else:
            execution.move(ExecutionState.SCORING)
            self._out.append(cmd.ScoreExecution(self.time_s, execution.execution, 0))
            group = self.pool.groups[execution.group]
            if group.open_members == 0:
                group.move(GroupState.SCORING)

    def _execution_scored(self, event: ev.ExecutionScored) -> None:
        execution = self.pool.execution(event.execution)
        if execution is None or execution.state is not ExecutionState.SCORING:
            return
        execution.score_attempts += 1
        if event.valid:
            execution.score, execution.sample_tokens = event.score, event.sample_tokens
            self._settle_execution(execution, ExecutionState.SCORED)
        elif execution.score_attempts < self.settings.score_attempts:
            self._out.append(cmd.ScoreExecution(self.time_s, execution.execution, execution.score_attempts))
        else:
            self._settle_execution(execution, ExecutionState.DROPPED)

    def _execution_lost(self, event: ev.ExecutionLost) -> None:
        execution = self._running(event.execution)
        if execution is not None:
            self.pool.end(execution)
            self._settle_execution(execution, ExecutionState.DROPPED)

    def _running(self, number: int) -> Execution | None:
        execution = self.pool.execution(number)
        return execution if execution is not None and execution.state is ExecutionState.RUNNING else None

    def _settle_execution(self, execution: Execution, state: ExecutionState) -> None:
        group = self.pool.settle(execution, state)
        if group.unscored_members > 0:
            if group.open_members == 0 and group.state is GroupState.RUNNING:
                group.move(GroupState.SCORING)
        elif group.scored_members >= min(self.settings.min_group_members, self.settings.group_size):
            self.pool.make_ready(group, self.time_s)
        else:
            self.pool.drop(group)
            self._out.append(cmd.DropGroup(self.time_s, group.group, "too few valid scores"))

    def _cell_changed(self, event: ev.CellChanged) -> None:
        self.fleet.change(event.cell, event.state)
        if event.state is CellState.TO_SERVING:
            self.step.release(event.cell)

    def _cell_failed(self, event: ev.CellFailed) -> None:
        self.fleet.change(event.cell, CellState.FAILED)
        self.step.release(event.cell)

    def _cell_joined(self, event: ev.CellJoined) -> None:
        self.fleet.change(event.cell, CellState.SERVING)
        if event.cell != self.fleet.core.index:
            return
        if self.step.phase is StepPhase.PUBLISHING:
            self._out.append(cmd.PublishWeights(self.time_s, self.version))
        elif self.step.phase is not StepPhase.IDLE:
            # The sum of gradients was in the core's memory: the step begins again, with the same groups.
            if self.step.phase is StepPhase.UPDATING:
                self.step.move(StepPhase.OPEN)
            self.step.restart()
            self._out.append(cmd.OpenStep(self.time_s, self.version))
            for number in self.step.groups:
                self._offer(self.pool.groups[number])

    def _micro_step_claimed(self, event: ev.MicroStepClaimed) -> None:
        if event.step == self.version:
            self.step.claim(event.micro_step, event.cell, event.time_s)

    def _micro_step_done(self, event: ev.MicroStepDone) -> None:
        if event.step == self.version:
            self.step.finish(event.micro_step, event.cell, event.time_s)

    def _update_applied(self, event: ev.UpdateApplied) -> None:
        self.version = event.version
        self.burst_steps += 1
        for number in self.step.groups:
            self.pool.consume(number)
        self.step.clear()
        self._barren_boundaries = self._events_without_update = 0
        if self.version >= self.settings.steps:
            self.stopped = True
            self._out.append(cmd.StopRun(self.time_s, self.version))
        elif self._policy.ends_burst():
            self.step.move(StepPhase.PUBLISHING)
            self._out.append(cmd.PublishWeights(self.time_s, self.version))
        else:
            self.step.move(StepPhase.IDLE)

    def _weights_published(self, event: ev.WeightsPublished) -> None:
        self.published_version = event.version
        self.step.move(StepPhase.IDLE)
        self.at_boundary = True

    def _timer(self, event: ev.Timer) -> None:
        self._wake_s = None

    # Decisions

    def _settle(self) -> None:
        """Ask the policy's questions until this event has no more consequences."""
        if self.step.phase is StepPhase.IDLE and self.pool.outstanding_groups == 0 and not self.at_boundary:
            self._barren_boundary()
        if self.at_boundary:
            self.burst_steps = 0
        for _ in range(self._policy.dispatch()):
            self._dispatch()
        self._move()
        self.at_boundary = False
        for execution in self.pool.startable(self.fleet.serving_capacity):
            self._out.append(cmd.StartExecution(self.time_s, execution.execution))
        self._train()
        wake_s = self._policy.wake_s()
        if wake_s is not None and wake_s != self._wake_s:
            self._wake_s = wake_s
            self._out.append(cmd.SetTimer(self.time_s, "policy", wake_s))

    def _move(self) -> None:
        for index, role in self._policy.moves():
            try:
                if role is CellRole.SERVING and index == 0 and self.step.phase is StepPhase.UPDATING:
                    raise IllegalMoveError("the core holds the sum of the gradients until the update is applied")
                self.fleet.ask(index, role)
            except (IllegalMoveError, IndexError) as error:
                raise self._policy.fault("moves", f"cell {index} to {role}: {error}") from error
            self._out.append(cmd.SwitchRole(self.time_s, index, role))

    def _barren_boundary(self) -> None:
        """Nothing is left to train on in this burst: it ends without an update, as if its weights were published."""
        self._barren_boundaries += 1
        if self._barren_boundaries > _MOST_BARREN_BOUNDARIES:
            raise InputError(
                f"no step can be made: all groups of {_MOST_BARREN_BOUNDARIES} dispatches in a row were dropped; "
                "look at the time-outs, at the scores and at min_group_members"
            )
        self.at_boundary = True

    def _dispatch(self) -> None:
        group = self.pool.dispatch(self.published_version, self.time_s)
        numbers = tuple(member.execution for member in group.members)
        self._out.append(cmd.DispatchGroup(self.time_s, group.group, group.version, numbers))

    def _train(self) -> None:
        step = self.step
        if step.phase is StepPhase.IDLE and self._policy.opens():
            step.move(StepPhase.OPEN)
            self._out.append(cmd.OpenStep(self.time_s, self.version))
        if step.phase is not StepPhase.OPEN:
            return
        for _ in range(self._policy.take()):
            group = self.pool.take()
            step.groups.append(group.group)
            self._offer(group)
        if step.groups and step.all_done and self.fleet.core.training and self._policy.closes():
            step.move(StepPhase.UPDATING)
            self._out.append(cmd.CloseJoinWindow(self.time_s, self.version))
            self._out.append(cmd.ApplyUpdate(self.time_s, self.version))

    def _offer(self, group: Group) -> None:
        samples = pack(group.sample_tokens, self.settings.micro_step_tokens)
        command = cmd.OfferMicroSteps(self.time_s, self.version, group.group, group.version, self.step.offered, samples)
        self.step.offered += len(samples)
        self._out.append(command)
