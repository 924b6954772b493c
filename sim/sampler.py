"""Which executions of the workload a dispatched group replays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gyre.config import GroupOrder
from gyre.workload.program import Program

from .draws import generator


def ungrouped(program: Program) -> bool:
    """Whether no two executions of a workload are of one group."""
    return len(np.unique(program.group)) == program.executions


class GroupSampler:
    """Maps the n-th dispatched group to N rows of a program, by seed alone, so that every policy sees the same groups.

    Groups come in epochs: each holds every group of the workload once. A recorded group with more than N members gives
    N of them; one with fewer gives all of them and repeats some, drawn with replacement. A workload without groups,
    each of one member, is cut into groups of N at random.
    """

    def __init__(
        self, program: Program, group_size: int, *, seed: int, order: GroupOrder = GroupOrder.SHUFFLED
    ) -> None:
        self._size = group_size
        self._seed = seed
        self._order = order
        self._members = self._grouped(program)
        self._epoch = -1
        self._permutation: npt.NDArray[np.int64] = np.arange(len(self._members))

    def _grouped(self, program: Program) -> list[npt.NDArray[np.int64]]:
        counts = np.bincount(program.group, minlength=len(program.group_ids))
        if ungrouped(program) and self._size > 1:
            rows = np.arange(program.executions)
            if self._order is GroupOrder.SHUFFLED:
                rows = generator(self._seed, 2).permutation(rows)
            return np.array_split(rows, max(1, program.executions // self._size))
        by_group = np.argsort(program.group, kind="stable")
        return [rows for rows in np.split(by_group, np.cumsum(counts)[:-1]) if len(rows)]

    def rows(self, group: int) -> npt.NDArray[np.int64]:
        """Return the program rows, shape (N,), of the group dispatched as number `group` (from 0)."""
        epoch, place = divmod(group, len(self._members))
        if epoch != self._epoch and self._order is GroupOrder.SHUFFLED:
            self._permutation = generator(self._seed, 0, epoch).permutation(len(self._members))
        self._epoch = epoch
        members = self._members[int(self._permutation[place])]
        if len(members) == self._size:
            return members
        draw = generator(self._seed, 1, group)
        if len(members) > self._size:
            return np.asarray(draw.choice(members, self._size, replace=False))
        return np.concatenate([members, draw.choice(members, self._size - len(members))])
