"""Settings of the buffer of ready groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..errors import InputError


class Order(StrEnum):
    """Which ready group a step takes first; ties by the order in which they became ready."""

    OLDEST = "oldest"  # of the oldest version: the least staleness at the tail
    NEWEST = "newest"  # of the newest version: the least staleness of what is trained, old ones may never be


class OnStale(StrEnum):
    """What happens where a group would be trained at more than the most staleness allowed."""

    DROP = "drop"  # the group is dropped
    WAIT = "wait"  # steps wait for such groups while they can still be trained in time


class Evict(StrEnum):
    """Which group leaves a full buffer."""

    OLDEST = "oldest"
    NEWEST = "newest"
    MOST_USED = "most_used"  # then the oldest
    LARGEST = "largest"  # in bytes


@dataclass(frozen=True, slots=True)
class BufferSettings:
    """What may wait in the buffer, and what a step takes of it. None: no limit."""

    order: Order = Order.OLDEST
    capacity_groups: int | None = None
    capacity_bytes: int | None = None
    evict: Evict = Evict.OLDEST
    groups_per_task: int | None = None  # most groups of one task in a step
    max_staleness: int | None = None  # most versions between a group's dispatch and its update
    on_stale: OnStale = OnStale.DROP
    older_share: float = 0.0  # of a step's groups, those that an earlier update has used; 0: none is trained twice
    max_uses: int = 1  # most updates that a group is part of; more than 1 where older_share is

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            InputError: a limit is below 1 (`max_staleness`: 0), or one setting needs another.
        """
        for name in ("capacity_groups", "capacity_bytes", "groups_per_task", "max_uses"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name}: {value}; give 1 or more{'' if name == 'max_uses' else ', or leave it out'}")
        if self.max_staleness is not None and self.max_staleness < 0:
            raise InputError(f"max_staleness: {self.max_staleness}; give 0 or more, or leave it out")
        if not 0.0 <= self.older_share <= 1.0:
            raise InputError(f"older_share: {self.older_share}; give a share from 0 to 1")
        if self.older_share and self.max_uses < 2:
            raise InputError(f"max_uses: {self.max_uses}, but older_share is {self.older_share}; give 2 or more")
        if self.max_uses > 1 and not self.older_share:
            raise InputError(f"max_uses: {self.max_uses} changes nothing without older_share; give both, or neither")
        if self.on_stale is OnStale.WAIT and self.max_staleness is None:
            raise InputError('on_stale: "wait" needs max_staleness; give both')

    @property
    def piles_up(self) -> bool:
        """Whether used groups that wait grow in number without end, where new ones are always there.

        With s the `older_share`, 1 - s of a step's groups are used for the first time, and s / (max_uses - 1) at most
        for the last.
        """
        limits = (self.max_staleness, self.capacity_groups, self.capacity_bytes)
        if not self.older_share or any(limit is not None for limit in limits):
            return False
        return 1 - self.older_share > self.older_share / (self.max_uses - 1)
