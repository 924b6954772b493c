"""The trainer of a run: the driver's `Training` port over an elastic core."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gyre.backends.run.ports import Reports, Restored
from gyre.commands import OfferMicroSteps
from gyre.events import CellFailed, MicroStepClaimed, MicroStepDone
from gyre.trajectory.advantages import Baseline
from gyre.trajectory.selection import Selection
from gyre.trajectory.store.part import Item

from .cell import TrainingCell
from .checkpoint import Checkpoints, CheckpointState
from .core_cell import NUMBER as CORE
from .core_cell import CoreCell
from .elastic_core import ElasticCore, ElasticSettings
from .group_micro_steps import GroupWork, Packing, group_work
from .micro_step_bytes import to_bytes
from .snapshot import SharedSnapshots, check_layout
from .step_service import StepService


class CheckpointSettings(BaseModel):
    """When the trainer's state is made durable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: int = Field(default=1, ge=1, description="updates between checkpoints; the last is always saved")
    keep: int = Field(default=2, ge=1, description="checkpoints that stay")


class ElasticTraining:
    """Sums the gradients that the core and its satellites compute, and makes the updates at the core.

    The core computes micro-steps itself from `train` to `rest`. Satellites come over HTTP, at `address` once it is
    started, with `key`.
    """

    def __init__(
        self,
        cell: TrainingCell,
        folder: Path,
        items: Callable[[int], Awaitable[Sequence[Item]]],
        *,
        key: str,
        selection: Selection | None = None,
        baseline: Baseline = Baseline.MEAN_STD,
        packing: Packing = "trees",
        elastic: ElasticSettings | None = None,
        checkpoints: CheckpointSettings | None = None,
        shared: SharedSnapshots | None = None,
        cursor: Callable[[], Mapping[str, Any]] = dict,
        host: str = "127.0.0.1",
    ) -> None:
        """Take the core's cell.

        Args:
            cell: of the core; it is used by one thread at a time.
            folder: for checkpoints and for gradients that do not fit into memory.
            items: gives the executions of a group with their trees, such as `StoredSamples.group`.
            key: what satellites must bear.
            selection: of the paths that are trained, as the samples were kept with.
            baseline: of a group's advantages.
            packing: whether a shared prefix is computed once.
            elastic: how cells share a step.
            checkpoints: when state is made durable.
            shared: where weights are exposed to cells of this machine.
            cursor: the place in the data, for checkpoints.
            host: where satellites are listened for.
        """
        self._items = items
        self._selection = selection or Selection()
        self._baseline = baseline
        self._packing: Packing = packing
        self._saving = checkpoints or CheckpointSettings()
        self._checkpoints = Checkpoints(folder / "checkpoints", keep=self._saving.keep)
        self._shared = shared
        self._cursor = cursor
        self._host = host
        self.core = ElasticCore(elastic or ElasticSettings(), cell.layout, folder / "gradients", self)
        self._service = StepService(self.core, key)
        self.address = ""
        self._own = CoreCell(cell, self.core, self._core_failed)
        self._groups: list[int] = []
        self._metrics: tuple[tuple[str, float], ...] = ()
        self._reports: Reports

    async def start(self, reports: Reports) -> Restored:
        """See `Training.start`."""
        self._reports = reports
        state = await self._own.run(lambda: self._checkpoints.restore(self._own.cell))
        restored = Restored(0) if state is None else Restored(state.version, state.groups, state.metrics)
        await self._publish(restored.version)
        self.address = await self._service.start(self._host)
        return restored

    @property
    def version(self) -> int:
        """Updates in the weights that the core holds."""
        return self.core.snapshot[0]

    @property
    def failure(self) -> str:
        """Why the core's own trainer cannot go on; "" where it can."""
        error = self._own.failure
        return "" if error is None else f"{type(error).__name__}: {error}"

    def check_satellite(self, size: int, layout: str) -> None:
        """Refuse a cell whose vectors, of `size` values in `layout`, are not the core's.

        Raises:
            InputError: they are not.
        """
        check_layout((self._own.cell.size, self._own.cell.layout), (size, layout))

    def train(self) -> None:
        """Let the core compute micro-steps."""
        self._own.train()

    async def rest(self) -> None:
        """Let the core compute no more and give its memory away; what it is computing is finished first."""
        await self._own.rest()

    async def leave(self, cell: int) -> None:
        """A cell trains no more, or is dead: what it had claimed waits again."""
        await self.core.leave(cell)

    async def export(self, out: Path, source: Path) -> None:
        """Write the core's weights as transformers and SGLang load them; `source` is the model's own folder.

        Raises:
            InputError: the system refuses to write, or `source` has gone.
        """
        await self._own.run(lambda: self._own.cell.export(out, source))

    async def open(self, step: int) -> None:
        """See `Training.open`."""
        self._own.check()
        if self.version != step:
            raise RuntimeError(f"step {step} cannot be made: the core holds version {self.version}")
        self._groups.clear()
        await self.core.open(step)

    async def offer(self, command: OfferMicroSteps) -> None:
        """See `Training.offer`."""
        items = await self._items(command.group)
        work = await asyncio.to_thread(self._made, items, command)
        steps = [(command.first + at, command.version, to_bytes(step)) for at, step in enumerate(work.micro_steps)]
        self._groups.append(command.group)
        await self.core.offer(steps, work.executions)

    async def close(self, step: int) -> None:
        """See `Training.close`."""
        await self.core.close()

    async def apply(self, step: int) -> tuple[tuple[str, float], ...]:
        """See `Training.apply`."""
        self._own.check()
        summed = await self.core.total()
        made = await self._own.run(lambda: self._own.cell.update(summed.gradient, summed.executions))
        await self._publish(step + 1)
        await self.core.finish()
        values = {**summed.figures.metrics(step, summed.executions), **made}
        self._metrics = tuple(sorted(values.items()))
        return self._metrics

    async def checkpoint(self, version: int, *, last: bool) -> bool:
        """See `Training.checkpoint`."""
        if version % self._saving.every and not last:
            return False
        state = CheckpointState(version, self._own.cell.layout, tuple(self._groups), self._metrics, self._cursor())
        await self._own.run(lambda: self._checkpoints.save(self._own.cell, state))
        return True

    async def stop(self) -> None:
        """See `Training.stop`."""
        await self._own.stop()
        await self._service.stop()
        if self._shared is not None:
            self._shared.clear()

    def claimed(self, cell: int, step: int, micro_step: int) -> None:
        """See `Listener.claimed`."""
        self._reports(MicroStepClaimed(self._reports.now_s, cell, step, micro_step))

    def done(self, cell: int, step: int, micro_step: int) -> None:
        """See `Listener.done`."""
        self._reports(MicroStepDone(self._reports.now_s, cell, step, micro_step))

    def _made(self, items: Sequence[Item], command: OfferMicroSteps) -> GroupWork:
        return group_work(items, command, self._selection, self._baseline, self._packing)

    def _core_failed(self) -> None:
        self._reports(CellFailed(self._reports.now_s, CORE))

    async def _publish(self, version: int) -> None:
        values = await self._own.run(self._own.cell.values)
        await self.core.publish(version, values)
        if self._shared is not None:
            await asyncio.to_thread(self._shared.put, version, values)
