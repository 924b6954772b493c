"""Settings of the buffer of ready groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
