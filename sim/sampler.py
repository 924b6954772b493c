"""Which executions of the workload a dispatched group replays."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from gyre.config import GroupOrder
from gyre.draws import generator
from gyre.task_order import TaskOrder
from gyre.workload.program import Program


def ungrouped(program: Program) -> bool:
    """Whether no two executions of a workload are of one group."""
    return len(np.unique(program.group)) == program.executions


_MEMBER_DRAW: Final = 1
_CUT_DRAW: Final = 2
_EXTRA_DRAW: Final = 3


class GroupSampler:
    """Maps a dispatched group to N rows of a program, by seed alone, so that every policy sees the same groups.

    The recorded groups of the workload are the tasks, and `tasks` is their order. A recorded group with more than N
    members gives N of them; one with fewer gives all of them and repeats some, drawn with replacement. A workload
    without groups, each of one member, is cut into groups of N at random. Executions beyond N, redundant ones and those
    that take the place of a lost one, replay a row drawn from all that were recorded of the task.
    """

    def __init__(
        self, program: Program, group_size: int, *, seed: int, order: GroupOrder = GroupOrder.SHUFFLED
    ) -> None:
        self._size = group_size
        self._seed = seed
        shuffled = order is GroupOrder.SHUFFLED
        self._members = self._grouped(program, shuffled)
        self.tasks = TaskOrder(len(self._members), seed=seed, shuffled=shuffled)

    def _grouped(self, program: Program, shuffled: bool) -> list[npt.NDArray[np.int64]]:
        counts = np.bincount(program.group, minlength=len(program.group_ids))
        if ungrouped(program) and self._size > 1:
            rows = np.arange(program.executions)
            if shuffled:
                rows = generator(self._seed, _CUT_DRAW).permutation(rows)
            return np.array_split(rows, max(1, program.executions // self._size))
        by_group = np.argsort(program.group, kind="stable")
        return [rows for rows in np.split(by_group, np.cumsum(counts)[:-1]) if len(rows)]

    def rows(self, group: int, task: int) -> npt.NDArray[np.int64]:
        """Return the program rows, shape (N,), of group number `group`, which has task `task`."""
        members = self._members[task]
        if len(members) == self._size:
            return members
        draw = generator(self._seed, _MEMBER_DRAW, group)
        if len(members) > self._size:
            return np.asarray(draw.choice(members, self._size, replace=False))
        return np.concatenate([members, draw.choice(members, self._size - len(members))])

    def extra_row(self, group: int, task: int, place: int) -> int:
        """Return the program row of the member at `place`, N or more, of a group."""
        return int(generator(self._seed, _EXTRA_DRAW, group, place).choice(self._members[task]))
