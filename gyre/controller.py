"""The scheduler: events in, commands out. It owns groups, versions and bursts; it has no clock and does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from . import commands as cmd
from . import events as ev
from .buffer.buffer import SampleBuffer
from .buffer.removal import Removal
from .checked_policy import CheckedPolicy
from .cluster import CellRole, CellState
from .controller_settings import ControllerSettings
from .data_cursor import DataCursor
from .endless_guard import EndlessGuard
from .fleet import Fleet
from .groups import Group, IllegalMoveError
from .kept_groups import KeptGroups
from .members import Members
from .outbox import Outbox
from .policies.base import Policy
from .pool import Pool
from .recovery import resume
from .step import Step, StepPhase, pack
from .task_order import TaskOrder
from .view import View

__all__ = ["Controller", "ControllerSettings"]

_POLICY_TIMER: Final = "policy"


class Controller:
    """Sans-IO scheduler of one run.

    `handle(event)` is the whole interface: it returns the commands that the event causes, in the order in which a
    cluster must carry them out. The same events give the same commands. Without `tasks` the n-th group has task n.
    """

    def __init__(self, settings: ControllerSettings, policy: Policy, tasks: TaskOrder | None = None) -> None:
        self.settings = settings
        self.policy = policy
        self.tasks = tasks
        self.version = 0  # updates applied; the step in training makes version + 1
        self.published_version = 0
        self.at_boundary = False
        self.burst_steps = 0
        self.stopped = False
        self.fleet = Fleet()
        settings.refuse_impossible(policy.settings, tasks)
        buffer = SampleBuffer(settings.buffer, settings.groups_per_step, seed=settings.seed)
        self.pool = Pool(settings.groups.stride(settings.group_size), buffer)
        self.step = Step()
        self.kept = KeptGroups()
        self.out = Outbox()
        self.members = Members(settings, self.pool, self.out, self._group_ready, self._group_dropped)
        self._policy = CheckedPolicy(policy, View(self))
        in_flight = policy.settings.depth_groups(settings.groups_per_step) + settings.groups_per_step
        self._guard = EndlessGuard(policy.name, in_flight * self.pool.stride)
        self._wake_s: float | None = None
        self._handlers: dict[type[ev.Event], Callable[[Any], None]] = {
            ev.RunStarted: self._run_started,
            ev.RunResumed: self._run_resumed,
            ev.ExecutionStarted: self.members.started,
            ev.ExecutionFinished: self.members.finished,
            ev.ExecutionScored: self.members.scored,
            ev.ExecutionLost: self.members.lost,
            ev.LoadReport: lambda event: None,
            ev.TransferDone: lambda event: None,
            ev.CellChanged: self._cell_changed,
            ev.CellFailed: self._cell_failed,
            ev.CellJoined: self._cell_joined,
            ev.MicroStepClaimed: self._micro_step_claimed,
            ev.MicroStepDone: self._micro_step_done,
            ev.UpdateApplied: self._update_applied,
            ev.CheckpointSaved: self._checkpoint_saved,
            ev.WeightsPublished: self._weights_published,
            ev.Timer: self._timer,
        }

    @property
    def time_s(self) -> float:
        """Time of the last event, seconds since the run began."""
        return self.out.time_s

    @property
    def cursor(self) -> DataCursor:
        """The place in the data up to which every group was trained or dropped, never ahead of trained work."""
        return self.pool.cursor

    def handle(self, event: ev.Event) -> list[cmd.Command]:
        """Take one event; return the commands that it causes. After `StopRun` only a checkpoint or a restart counts.

        Raises:
            IllegalMoveError: the event contradicts what was reported before.
            ValueError: an execution ended with an outcome that is none.
            InputError: the policy asks for what cannot be, every group is dropped so that no step can be made, or a run
                cannot go on with the weights that its trainer has.
        """
        commands = self.out.begin(event.time_s)
        if not self.stopped or isinstance(event, (ev.CheckpointSaved, ev.RunResumed)):
            self._handlers[type(event)](event)
            self._guard.event(self.version)
            if not isinstance(event, (ev.LoadReport, ev.TransferDone)) and not self.stopped:
                self._settle()
        return commands

    # Events

    def _run_started(self, event: ev.RunStarted) -> None:
        self.fleet.start(event.cells)
        self.at_boundary = True

    def _run_resumed(self, event: ev.RunResumed) -> None:
        self._wake_s = None
        self._guard.updated()
        resume(self, event)

    def _group_ready(self, group: Group) -> None:
        self.remove(self.pool.make_ready(group, self.time_s, self.version))

    def _group_dropped(self, group: Group, reason: str) -> None:
        self.pool.drop(group)
        self._put_drop(group, reason)

    def remove(self, removals: Iterable[Removal]) -> None:
        """Let groups go that left the buffer: drop those never trained, keep the others while they may be needed."""
        for removal in removals:
            group = self.pool.forget(removal)
            if removal.trained:
                self.kept.keep(group)
            else:
                self._put_drop(group, removal.reason)
        if not self.settings.keeps_until_checkpoint:
            self._release(self.version)

    def _put_drop(self, group: Group, reason: str) -> None:
        self._guard.dropped(reason)
        self.out.put(cmd.DropGroup, group.group, reason)

    def _cell_changed(self, event: ev.CellChanged) -> None:
        self.fleet.change(event.cell, event.state)
        if event.state is CellState.TO_SERVING:
            self.step.release(event.cell)

    def _cell_failed(self, event: ev.CellFailed) -> None:
        if self.fleet.cell(event.cell).state is CellState.FAILED:
            return  # both who watches a cell and who moves it may tell
        self.fleet.change(event.cell, CellState.FAILED)
        self.step.release(event.cell)

    def _cell_joined(self, event: ev.CellJoined) -> None:
        self.fleet.change(event.cell, CellState.SERVING)
        if event.cell != self.fleet.core.index:
            return
        if self.step.phase is StepPhase.PUBLISHING:
            self.out.put(cmd.PublishWeights, self.version)
        else:
            self.restart_step()

    def restart_step(self) -> None:
        """Begin the open step again, if there is one, with the same groups: the sum of their gradients was lost."""
        if self.step.phase is StepPhase.UPDATING:
            self.step.move(StepPhase.OPEN)
        if self.step.phase is not StepPhase.OPEN:
            return
        self.step.restart()
        self.out.put(cmd.OpenStep, self.version)
        for number in self.step.groups:
            self._offer(self.pool.groups[number])

    def _micro_step_claimed(self, event: ev.MicroStepClaimed) -> None:
        if event.step == self.version:
            self.step.claim(event.micro_step, event.cell, event.time_s)

    def _micro_step_done(self, event: ev.MicroStepDone) -> None:
        if event.step == self.version:
            self.step.finish(event.micro_step, event.cell, event.time_s)

    def _update_applied(self, event: ev.UpdateApplied) -> None:
        self.update_made(event.version)

    def update_made(self, version: int) -> None:
        """The core holds weights `version`: what the step took is trained; the burst ends, or goes on."""
        if self.step.phase is not StepPhase.UPDATING or version != self.version + 1:
            raise IllegalMoveError(f"version {version} cannot follow {self.version}: training is {self.step.phase}")
        self.version = version
        self.burst_steps += 1
        self.remove(self.pool.consume(self.step.groups, version))
        self.step.clear()
        self._guard.updated()
        if self.version >= self.settings.steps:
            self.stopped = True
            self.out.put(cmd.StopRun, self.version)
        elif self._policy.ends_burst():
            self.step.move(StepPhase.PUBLISHING)
            self.out.put(cmd.PublishWeights, self.version)
        else:
            self.step.move(StepPhase.IDLE)

    def _checkpoint_saved(self, event: ev.CheckpointSaved) -> None:
        if event.version > self.version:
            raise IllegalMoveError(f"version {event.version} cannot be saved: the last that was made is {self.version}")
        self._release(event.version)

    def _release(self, durable_version: int) -> None:
        for group in self.kept.saved(durable_version):
            self.out.put(cmd.ReleaseGroup, group.group)

    def _weights_published(self, event: ev.WeightsPublished) -> None:
        if self.step.phase is not StepPhase.PUBLISHING or event.version != self.version:
            if event.version > self.published_version:
                raise IllegalMoveError(f"version {event.version} was published, but training is {self.step.phase}")
            return  # told again: it was commanded again for a core that came back
        self.published_version = event.version
        self.step.move(StepPhase.IDLE)
        self.at_boundary = True

    def _timer(self, event: ev.Timer) -> None:
        if not self.members.timer(event.name):
            self._wake_s = None

    # Decisions

    def _settle(self) -> None:
        """Ask the policy's questions until this event has no more consequences."""
        if self.step.phase is StepPhase.IDLE and self.pool.outstanding_groups == 0 and not self.at_boundary:
            # Nothing is left to train on in this burst: it ends without an update, as if its weights were published.
            self._guard.barren_boundary()
            self.at_boundary = True
        if self.at_boundary:
            self.burst_steps = 0
        for _ in range(self._policy.dispatch()):
            self._dispatch()
        self._move()
        self.at_boundary = False
        for execution in self.pool.startable(self.fleet.serving_capacity):
            self.out.put(cmd.StartExecution, execution.execution)
        self._train()
        wake_s = self._policy.wake_s()
        if wake_s is not None and wake_s != self._wake_s:
            self._wake_s = wake_s
            self.out.put(cmd.SetTimer, _POLICY_TIMER, wake_s)

    def _move(self) -> None:
        for index, role in self._policy.moves():
            try:
                if role is CellRole.SERVING and index == 0 and self.step.phase is StepPhase.UPDATING:
                    raise IllegalMoveError("the core holds the sum of the gradients until the update is applied")
                self.fleet.ask(index, role)
            except IllegalMoveError as error:
                raise self._policy.fault("moves", f"cell {index} to {role}: {error}") from error
            self.out.put(cmd.SwitchRole, index, role)

    def _dispatch(self) -> None:
        number = self.pool.dispatched_groups
        task = number if self.tasks is None else self.tasks.task(number)
        executions = self.settings.group_size + self.settings.groups.redundancy
        group = self.pool.dispatch(self.published_version, self.time_s, executions, task)
        numbers = tuple(member.execution for member in group.members)
        self.out.put(cmd.DispatchGroup, group.group, group.version, numbers, task)

    def _train(self) -> None:
        step = self.step
        if step.phase is StepPhase.IDLE and self._policy.opens():
            step.move(StepPhase.OPEN)
            self.out.put(cmd.OpenStep, self.version)
        if step.phase is not StepPhase.OPEN:
            return
        takeable = self.pool.takeable_groups(self.version)
        for _ in range(min(self._policy.take(), takeable) if takeable else 0):
            group = self.pool.take(self.version)
            step.groups.append(group.group)
            self._offer(group)
        if step.groups and step.all_done and self.fleet.core.training and self._policy.closes():
            step.move(StepPhase.UPDATING)
            self.out.put(cmd.CloseJoinWindow, self.version)
            self.out.put(cmd.ApplyUpdate, self.version)

    def _offer(self, group: Group) -> None:
        samples = pack(group.sample_tokens, self.settings.micro_step_tokens)
        self.out.put(cmd.OfferMicroSteps, self.version, group.group, group.version, self.step.offered, samples)
        self.step.offered += len(samples)
