"""The core of elastic steps, in an event loop: snapshots, claims that wait for work, gradients into the sum."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from gyre.arrays import Float32Array
from gyre.backends.run.worker import to_its_end

from .elastic_step import Claim, ElasticStep, GoneError, Summed, Window
from .figures import Figures
from .gradient_sum import ExactSum, GradientSum, RunningSum, SumKind
from .step_info import StepInfo, digest_of


class ElasticSettings(BaseModel):
    """How cells share a step."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lease_s: float = Field(
        default=300.0, gt=0, description="seconds after which a micro-step that a cell claimed is given to another"
    )
    transfer_timeout_s: float = Field(
        default=30.0, gt=0, description="seconds without a byte after which a transfer is given up"
    )
    sum: SumKind = Field(
        default="running", description="exact: bit-equal whatever cell does what, at 4 bytes a weight and micro-step"
    )
    exact_memory_bytes: int = Field(
        default=1 << 30, ge=0, description="what the exact sum may hold in memory; the rest goes to files"
    )


class Listener(Protocol):
    """Hears of micro-steps."""

    def claimed(self, cell: int, step: int, micro_step: int) -> None:
        """A cell took one."""
        ...

    def done(self, cell: int, step: int, micro_step: int) -> None:
        """Its gradient is in the sum."""
        ...


class ElasticCore:
    """Holds the snapshot and the open step. All its coroutines run in one event loop."""

    def __init__(
        self,
        settings: ElasticSettings,
        layout: str,
        spill: Path,
        listener: Listener,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the name of the cells' layout, and a folder for gradients that do not fit into memory."""
        self.settings = settings
        self._layout = layout
        self._spill = spill
        self._listener = listener
        self._clock = clock
        self._step = ElasticStep(settings.lease_s, self._new_sum)
        self._lock = asyncio.Lock()  # a gradient is added in a thread: nobody may touch the step meanwhile
        self._changed = asyncio.Condition()
        self._leaving: set[int] = set()  # cells that wait for nothing any more
        self._values: Float32Array | None = None
        self._version = -1
        self._digest = ""

    @property
    def snapshot(self) -> tuple[int, str, Float32Array]:
        """Version, digest and values of the weights, (N,); they are not changed, but replaced."""
        assert self._values is not None, "nothing was published yet"
        return self._version, self._digest, self._values

    async def publish(self, version: int, values: Float32Array) -> None:
        """Expose weights; nobody may write to `values` (N,) any more."""
        self._digest = await asyncio.to_thread(digest_of, values)
        self._values, self._version = values, version

    async def open(self, step: int) -> None:
        """Begin to sum gradients of the published weights, from nothing."""
        async with self._lock:
            self._step.open(step, uuid.uuid4().hex)
        await self._notify()

    async def offer(self, micro_steps: Iterable[tuple[int, int, bytes]], executions: int) -> None:
        """Put micro-steps (number, version, payload) into the queue, of `executions` with a trained token."""
        async with self._lock:
            for number, version, payload in micro_steps:
                self._step.offer(number, version, payload)
            self._step.add_executions(executions)
        await self._notify()

    async def close(self) -> None:
        """Close the join window."""
        async with self._lock:
            self._step.close()
        await self._notify()

    async def total(self) -> Summed:
        """Return what the closed step comes to."""
        async with self._lock:
            return await asyncio.to_thread(self._step.total)

    async def finish(self) -> None:
        """Forget the closed step."""
        async with self._lock:
            self._step.finish()

    async def info(self, cell: int, wait_s: float) -> StepInfo | None:
        """Return the step that a cell may join, waiting for one; None if none opens in time, or the cell is leaving."""

        def found() -> bool:
            return self._step.window is Window.OPEN

        await self._wait(lambda: found() or cell in self._leaving, wait_s)
        if cell in self._leaving or not found():
            return None
        version, digest, values = self.snapshot
        return StepInfo(self._step.attempt, self._step.step, version, len(values), self._layout, digest)

    async def claim(self, attempt: str, cell: int, wait_s: float) -> Claim | None:
        """Give a cell a micro-step, waiting for one; None if there is none in time, or the cell is leaving.

        Raises:
            GoneError: the attempt is over.
        """
        deadline_s = self._clock() + wait_s
        while cell not in self._leaving:
            async with self._lock:
                claim = self._step.claim(attempt, cell, self._clock())
            if claim is not None:
                self._listener.claimed(cell, self._step.step, claim.number)
                return claim
            left_s = deadline_s - self._clock()
            if left_s <= 0:
                return None
            expiry_s = self._step.queue.next_expiry_s
            nap_s = left_s if expiry_s is None else min(left_s, max(0.0, expiry_s - self._clock()))
            await self._wait(lambda: self._is_over(attempt) or self._step.queue.waits or cell in self._leaving, nap_s)
        return None

    def check(self, attempt: str) -> None:
        """Raise GoneError if the attempt is over."""
        if self._is_over(attempt):
            raise GoneError(f"attempt {attempt} is over")

    async def commit(self, attempt: str, cell: int, number: int, gradient: Float32Array, figures: Figures) -> bool:
        """Take a whole gradient (N,); False if the micro-step was done already: it is dropped.

        Raises:
            GoneError: the attempt is over.
        """
        return await to_its_end(
            self._commit(cell, number, partial(self._step.commit, attempt, number, gradient, figures))
        )

    async def _commit(self, cell: int, number: int, add: Callable[[], bool]) -> bool:
        async with self._lock:
            step = self._step.step
            committed = await asyncio.to_thread(add)
        if committed:
            self._listener.done(cell, step, number)
        return committed

    async def leaving(self, cell: int) -> None:
        """A cell is about to `leave`: whatever it waits for until then is answered at once."""
        self._leaving.add(cell)
        await self._notify()

    async def leave(self, cell: int) -> None:
        """A cell trains no more: what it had claimed waits again."""
        async with self._lock:
            self._step.queue.leave(cell)
        self._leaving.discard(cell)
        await self._notify()

    def _is_over(self, attempt: str) -> bool:
        return self._step.window is not Window.OPEN or attempt != self._step.attempt

    def _new_sum(self) -> GradientSum:
        size = len(self.snapshot[2])
        if self.settings.sum == "exact":
            return ExactSum(size, self._spill, self.settings.exact_memory_bytes)
        return RunningSum(size)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Wait until `ready`, at most so long; return whether it is."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(ready)
        except TimeoutError:
            return ready()
        return True
