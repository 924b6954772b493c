"""Which task each dispatched group has: epochs over the data, in order or shuffled anew each time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .draws import generator

_PERMUTATION_DRAW = 0


class TaskOrder:
    """Maps the n-th dispatched group to a task, by seed alone, so that every policy sees the same tasks.

    An epoch holds every task once. A restarted run needs no more than the number of its next group.
    """

    def __init__(self, tasks: int, *, seed: int = 0, shuffled: bool = True) -> None:
        """Order `tasks` tasks, numbered from 0; raise ValueError where there is none."""
        if tasks < 1:
            raise ValueError(f"tasks: {tasks}; give at least one")
        self.tasks = tasks
        self._seed = seed
        self._shuffled = shuffled
        self._epoch = -1
        self._permutation: npt.NDArray[np.int64] = np.arange(tasks)

    def task(self, group: int) -> int:
        """Return the task of the group dispatched as number `group` (from 0)."""
        epoch, place = divmod(group, self.tasks)
        if epoch != self._epoch and self._shuffled:
            self._permutation = generator(self._seed, _PERMUTATION_DRAW, epoch).permutation(self.tasks)
        self._epoch = epoch
        return int(self._permutation[place])
