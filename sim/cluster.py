"""gyre's simulated cluster: SimPy runs what the scheduler sees, the compiled serving model runs the calls between."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import simpy

from gyre import commands as cmd
from gyre.cluster import Cluster
from gyre.commands import Command
from gyre.config import RunSettings
from gyre.controller import Controller
from gyre.errors import InputError
from gyre.events import Event, RunStarted, Timer
from gyre.journal import Entry
from gyre.workload.program import Program

from .capacity import cell_capacity
from .cells import Cells, build_cells
from .context import Context
from .hardware_profile import HardwareProfile
from .rollouts import Rollouts
from .sampler import GroupSampler
from .serving import ServingModel
from .trainer import Trainer


class SimCluster(Cluster):
    """Drives one controller through a simulated run.

    `record` gets every event and command, in the journal's order.
    """

    def __init__(
        self,
        settings: RunSettings,
        program: Program,
        hardware: HardwareProfile,
        controller: Controller,
        record: Callable[[Entry], None],
        sampler: GroupSampler,
    ) -> None:
        cells = build_cells(settings, hardware, cell_capacity(settings, hardware, program))
        engines = [hardware.engine_spec()] * cells[-1].engines.stop
        model = ServingModel(program, engines, rebalance=settings.cluster.rebalance or math.inf)
        self._context = Context(settings, hardware, program, simpy.Environment(), model, self.report)
        self._controller = controller
        self._record = record
        self._inbox: deque[Event] = deque()
        self._handling = False
        self._cells = Cells(self._context, cells, lambda cell: self._trainer.cell_changed(cell))  # noqa: PLW0108 (below)
        gpus = [cell.spec.gpus for cell in cells]
        self._trainer = Trainer(self._context, gpus, self._cells.trains, self._cells.report_loads)
        self._rollouts = Rollouts(self._context, sampler)
        self._stopped = False
        self._commands: dict[type[Command], Callable[[Any], None]] = {
            cmd.DispatchGroup: self._rollouts.dispatch,
            cmd.StartExecution: lambda command: self._rollouts.start(command.execution),
            cmd.CancelExecution: lambda command: self._rollouts.cancel(command.execution),
            cmd.ScoreExecution: lambda command: self._rollouts.score(command.execution, command.attempt),
            cmd.SwitchRole: lambda command: self._cells.ask(command.cell, command.role),
            cmd.OpenStep: lambda command: self._trainer.open(command.step),
            cmd.OfferMicroSteps: self._trainer.offer,
            cmd.CloseJoinWindow: lambda command: None,  # in the simulator a cell joins by its first claim
            cmd.ApplyUpdate: self._trainer.apply,
            cmd.PublishWeights: self._publish,
            cmd.AddExecutions: self._rollouts.add,
            cmd.DropGroup: lambda command: self._rollouts.forget(command.group),
            cmd.ReleaseGroup: lambda command: self._rollouts.forget(command.group),
            cmd.SetTimer: self._set_timer,
            cmd.StopRun: self._stop,
        }

    def run(self) -> None:
        """Run until the controller stops the run.

        Raises:
            InputError: nothing can happen any more though the run is not done.
        """
        self._cells.start()
        self.report(RunStarted(0.0, self._cells.specs))
        env, model = self._context.env, self._context.model
        while not self._stopped:
            horizon_s = env.peek()
            if horizon_s <= model.now_s:
                env.step()  # all that the control plane does at this time comes before any call goes on
                continue
            ended = model.advance(horizon_s)
            if ended is not None:
                self._rollouts.ended(ended)
            elif horizon_s == float("inf"):
                raise InputError(self._stuck())
            else:
                env.step()

    def report(self, event: Event) -> None:
        """Give an event to the controller and carry out what it commands; events that this causes follow in order."""
        self._inbox.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._inbox and not self._stopped:
                current = self._inbox.popleft()
                self._record(current)
                commands = self._controller.handle(current)
                for command in commands:
                    self._record(command)
                self.execute(commands)
        finally:
            self._handling = False

    def execute(self, commands: Sequence[Command]) -> None:
        """Carry out commands in the order given."""
        for command in commands:
            self._commands[type(command)](command)

    def _publish(self, command: cmd.PublishWeights) -> None:
        self._cells.publish(command.version, lambda: self._rollouts.published(command.version))

    def _set_timer(self, command: cmd.SetTimer) -> None:
        def ring(_: simpy.Event) -> None:
            self.report(Timer(self._context.now_s, command.name))

        self._context.after(command.at_s - self._context.now_s, ring)

    def _stop(self, command: cmd.StopRun) -> None:
        self._stopped = True

    def _stuck(self) -> str:
        pool = self._controller.pool
        return (
            f"nothing can happen any more at {self._context.now_s:.0f} s: {pool.running} executions run, "
            f"{pool.ready_groups} groups are ready, training is {self._controller.step.phase}; "
            "the policy moves no cell that would go on"
        )
