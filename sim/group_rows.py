"""Which executions of the workload a finished run's groups replayed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gyre.commands import AddExecutions, DispatchGroup
from gyre.events import ExecutionScored
from gyre.journal import Entry

from .run import Run


class GroupRows:
    """Collects from a journal which members each group had, and which of them hold a score."""

    def __init__(self, run: Run) -> None:
        self._sampler = run.sampler()
        self._size = run.settings.training.group_size
        self._stride = run.settings.groups.stride(self._size)
        self._extra: dict[int, list[int]] = {}  # group -> places beyond N
        self._scored: set[int] = set()

    def add(self, entry: Entry) -> None:
        """Take the next entry of the journal."""
        if self._stride == self._size:
            return  # all groups have their N members and no more
        if isinstance(entry, DispatchGroup):
            self._extra[entry.group] = list(range(self._size, len(entry.executions)))
        elif isinstance(entry, AddExecutions):
            self._extra[entry.group] += [execution % self._stride for execution in entry.executions]
        elif isinstance(entry, ExecutionScored) and entry.valid:
            self._scored.add(entry.execution)

    def of(self, group: int) -> npt.NDArray[np.int64]:
        """Return the program rows, shape (N,), of a group: members with a score first, then those that lost theirs."""
        task = self._sampler.tasks.task(group)
        rows = self._sampler.rows(group, task)
        places = self._extra.get(group)
        if not places:
            return rows
        every = [*rows.tolist(), *(self._sampler.extra_row(group, task, place) for place in places)]
        numbered = enumerate([*range(self._size), *places])
        order = sorted(numbered, key=lambda at: group * self._stride + at[1] not in self._scored)
        return np.array([every[index] for index, _ in order[: self._size]], np.int64)
