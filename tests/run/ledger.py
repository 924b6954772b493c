"""Cells and a trainer for tests, honest and small: a ledger of updates that is written to disk, and no weights."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gyre.backends.run.ports import Reports, Restored
from gyre.backends.run.sealed import read_sealed, write_sealed
from gyre.cluster import CellKind, CellRole, CellSpec, CellState
from gyre.commands import OfferMicroSteps
from gyre.events import MicroStepClaimed, MicroStepDone
from gyre.trajectory.store.part import Item

Update = list[list[Any]]  # [group, digest of its samples] of one update


def digest(items: list[Item]) -> str:
    """Name a group's samples by their content: tokens, log-probabilities, versions and scores, in any order."""
    parts = []
    for record, tree in items:
        content = (tree.tokens.tobytes(), tree.logprobs.tobytes(), tree.versions.tobytes(), repr(record.score).encode())
        parts.append(record.execution.partition("-")[0].encode() + b"".join(content))
    return hashlib.sha256(b"|".join(sorted(parts))).hexdigest()[:16]


def read_ledger(path: Path) -> list[Update]:
    """The durable updates, in order; the n-th made version n."""
    found = read_sealed(path, "ledger", "restore it")
    return [] if found is None else list(found["updates"])


class LedgerTraining:
    """The trainer: reads the samples of each group that it is offered, and writes down what each update was made of."""

    def __init__(self, path: Path, samples: Callable[[int], Awaitable[list[Item]]], *, every: int = 1) -> None:
        """A checkpoint is made `every` so many updates, and after the last."""
        self.updates: list[Update] = []
        self._path = path
        self._samples = samples
        self._every = every
        self._step = -1
        self._taken: dict[int, str] = {}
        self._queue: list[int] = []
        self._trains = False
        self._report: Reports

    async def start(self, reports: Reports) -> Restored:
        self._report = reports
        self.updates = read_ledger(self._path)
        last = self.updates[-1] if self.updates else []
        return Restored(len(self.updates), tuple(group for group, _ in last), (("groups", float(len(last))),))

    async def open(self, step: int) -> None:
        assert step == len(self.updates), "an update is made on the weights before it"
        self._step = step
        self._taken.clear()
        self._queue.clear()

    async def offer(self, command: OfferMicroSteps) -> None:
        assert command.step == self._step
        self._taken[command.group] = digest(await self._samples(command.group))
        self._queue += range(command.first, command.first + len(command.samples))
        self._claim()

    def core_changed(self, state: CellState) -> None:
        """The core cell entered a state."""
        self._trains = state is CellState.TRAINING
        self._claim()

    def _claim(self) -> None:
        while self._trains and self._queue:
            number = self._queue.pop(0)
            self._report(MicroStepClaimed(self._report.now_s, 0, self._step, number))
            self._report(MicroStepDone(self._report.now_s, 0, self._step, number))

    async def close(self, step: int) -> None:
        assert step == self._step

    async def apply(self, step: int) -> tuple[tuple[str, float], ...]:
        assert step == self._step
        assert not self._queue
        self.updates.append([[group, name] for group, name in self._taken.items()])
        return (("groups", float(len(self._taken))),)

    async def checkpoint(self, version: int, *, last: bool) -> bool:
        assert version == len(self.updates)
        if version % self._every and not last:
            return False
        write_sealed(self._path, "ledger", {"updates": self.updates})
        return True

    async def stop(self) -> None:
        pass


class LedgerCells:
    """Cells that switch at once: the core and satellites, each of a capacity in executions."""

    def __init__(self, training: LedgerTraining, *, cells: int = 2, capacity: int = 4) -> None:
        self.published: list[int] = []
        self._training = training
        kinds = [CellKind.CORE] + [CellKind.SATELLITE] * (cells - 1)
        self._specs = tuple(CellSpec(index, kind, capacity, 1) for index, kind in enumerate(kinds))

    async def start(self, reports: Reports) -> tuple[CellSpec, ...]:
        return self._specs

    async def switch(self, cell: int, role: CellRole, changed: Callable[[CellState], None]) -> None:
        on_way, there = {
            CellRole.TRAINING: (CellState.TO_TRAINING, CellState.TRAINING),
            CellRole.SERVING: (CellState.TO_SERVING, CellState.SERVING),
        }[role]
        for state in (on_way, there):
            changed(state)
            if cell == 0:
                self._training.core_changed(state)

    async def publish(self, version: int) -> None:
        self.published.append(version)

    async def stop(self) -> None:
        pass
