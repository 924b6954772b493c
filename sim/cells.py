"""The simulated cells: their engines, role switches, failures and serving meters."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import simpy

from gyre.cluster import CellKind, CellRole, CellSpec, CellState
from gyre.config import KvOnLeave, KvOnPublish, RunSettings
from gyre.draws import exponential
from gyre.events import CellChanged, CellFailed, CellJoined, LoadReport, WeightsPublished

from .context import Context
from .hardware_profile import HardwareProfile

_FAILURE_DRAW = 101
Process = Generator[simpy.Event, Any, None]


@dataclass(slots=True)
class SimCell:
    """One cell of the simulated cluster."""

    spec: CellSpec
    engines: range  # numbers of its engines in the serving model
    state: CellState = CellState.SERVING
    switch: simpy.Process | None = None


def build_cells(settings: RunSettings, hardware: HardwareProfile, capacity: int) -> list[SimCell]:
    """Lay out elastic cells (core first) of `capacity` executions each, then standalone engines; number all engines."""
    cluster = settings.cluster
    per_cell = hardware.engines_per_cell
    cells: list[SimCell] = []
    for index in range(cluster.cells):
        spec = CellSpec(index, CellKind.SATELLITE if index else CellKind.CORE, capacity, hardware.cell.gpus)
        cells.append(SimCell(spec, range(index * per_cell, (index + 1) * per_cell)))
    first = cluster.cells * per_cell
    for number in range(cluster.standalone_engines):
        share = max(1, capacity // per_cell)
        spec = CellSpec(cluster.cells + number, CellKind.STANDALONE, share, hardware.engine.gpus_per_engine)
        cells.append(SimCell(spec, range(first + number, first + number + 1)))
    return cells


class Cells:
    """Carries out role switches and publishes, lets cells fail and return."""

    def __init__(self, context: Context, cells: list[SimCell], on_training: Callable[[int], None]) -> None:
        self._context = context
        self.cells = cells
        self._on_training = on_training  # a cell arrived in training, or left it
        self._publish: simpy.Process | None = None
        self._publishing = False
        self._paused: set[int] = set()  # engines that wait for new weights

    @property
    def specs(self) -> tuple[CellSpec, ...]:
        """The cells as reported at the start of a run."""
        return tuple(cell.spec for cell in self.cells)

    def start(self) -> None:
        """Open every engine and set up the failures that the settings ask for."""
        for cell in self.cells:
            self._open(cell)
        if self._context.settings.faults.cell_mean_time_between_failures_s is not None:
            for cell in self.cells:
                self._context.env.process(self._failures(cell))

    def trains(self, index: int) -> bool:
        """Whether a cell can claim micro-steps now."""
        return self.cells[index].state is CellState.TRAINING

    def ask(self, index: int, role: CellRole) -> None:
        """Start a role switch: the cell leaves its role now and arrives in the other after the switch's time."""
        cell = self.cells[index]
        if role is CellRole.TRAINING:
            self._close(cell, migrate=self._context.settings.cluster.kv_on_leave is KvOnLeave.MIGRATE)
            self._enter(cell, CellState.TO_TRAINING)
        else:
            self._enter(cell, CellState.TO_SERVING)
            self._on_training(index)
        cell.switch = self._context.env.process(self._switching(cell, role))

    def _enter(self, cell: SimCell, state: CellState) -> None:
        cell.state = state
        self._context.report(CellChanged(self._context.now_s, cell.spec.cell, state))

    def _switching(self, cell: SimCell, role: CellRole) -> Process:
        switch = self._context.hardware.switch
        try:
            yield self._context.wait(switch.to_training_s if role is CellRole.TRAINING else switch.to_serving_s)
        except simpy.Interrupt:
            return  # the cell failed on the way
        if role is CellRole.TRAINING:
            self._enter(cell, CellState.TRAINING)
            self._on_training(cell.spec.cell)
        else:
            self._open(cell)
            self._enter(cell, CellState.SERVING)

    def _open(self, cell: SimCell) -> None:
        for engine in cell.engines:
            self._context.model.open(engine)
            if self._publishing:
                self._pause(engine)

    def _close(self, cell: SimCell, *, migrate: bool) -> None:
        for engine in cell.engines:
            self._context.model.close(engine, migrate=migrate)
            self._paused.discard(engine)
        self.report_load(cell)

    # Weights

    def publish(self, version: int, on_done: Callable[[], None]) -> None:
        """Pause every serving engine, give it weights `version`, go on; call `on_done` before the event is reported."""
        self._publish = self._context.env.process(self._publishing_process(version, on_done))

    def _publishing_process(self, version: int, on_done: Callable[[], None]) -> Process:
        context = self._context
        self._publishing = True
        for engine in self._serving_engines():
            self._pause(engine)
        try:
            yield context.wait(context.hardware.publish_s)
        except simpy.Interrupt:
            return  # the core failed: its return begins the publish again, the engines stay paused until then
        self._publishing = False
        on_done()
        recompute = context.settings.cluster.kv_on_publish is KvOnPublish.RECOMPUTE
        for engine in sorted(self._paused):
            context.model.resume(engine, recompute=recompute)
        self._paused.clear()
        self.report_loads()
        context.report(WeightsPublished(context.now_s, version))

    def _pause(self, engine: int) -> None:
        if engine not in self._paused:
            self._paused.add(engine)
            self._context.model.pause(engine)

    def _serving_engines(self) -> list[int]:
        return [engine for cell in self.cells if cell.state is CellState.SERVING for engine in cell.engines]

    # Failures

    def _failures(self, cell: SimCell) -> Process:
        faults = self._context.settings.faults
        mean_s = faults.cell_mean_time_between_failures_s
        assert mean_s is not None
        number = 0
        while True:
            keys = (_FAILURE_DRAW, cell.spec.cell, number)
            yield self._context.wait(exponential(mean_s, self._context.settings.seed, *keys))
            self._fail(cell)
            yield self._context.wait(faults.cell_repair_s)
            self._open(cell)
            cell.state = CellState.SERVING
            self._context.report(CellJoined(self._context.now_s, cell.spec.cell))
            number += 1

    def _fail(self, cell: SimCell) -> None:
        if cell.switch is not None and cell.switch.is_alive:
            cell.switch.interrupt("failed")
        if cell.spec.kind is CellKind.CORE and self._publish is not None and self._publish.is_alive:
            self._publish.interrupt("core failed")
        if cell.state is CellState.SERVING:
            self._close(cell, migrate=False)
        cell.state = CellState.FAILED
        self._on_training(cell.spec.cell)
        self._context.report(CellFailed(self._context.now_s, cell.spec.cell))

    # Meters

    def report_loads(self) -> None:
        """Report the serving meters of every cell."""
        for cell in self.cells:
            self.report_load(cell)

    def report_load(self, cell: SimCell) -> None:
        """Report the serving meters of one cell, summed over its engines."""
        meters = [self._context.model.meters(engine) for engine in cell.engines]
        self._context.report(
            LoadReport(
                time_s=self._context.now_s,
                cell=cell.spec.cell,
                running=sum(meter.running for meter in meters),
                waiting=sum(meter.waiting for meter in meters),
                kv_tokens=sum(meter.kv_tokens for meter in meters),
                busy_s=sum(meter.busy_s for meter in meters) / len(meters),
                prefill_s=sum(meter.prefill_s for meter in meters) / len(meters),
                decoded_tokens=sum(meter.decoded_tokens for meter in meters),
                prefilled_tokens=sum(meter.prefilled_tokens for meter in meters),
                cached_tokens=sum(meter.cached_tokens for meter in meters),
            )
        )
