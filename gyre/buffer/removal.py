"""A group that leaves the buffer, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a group left."""

    EVICTED = "evicted"  # the buffer was full
    TOO_LARGE = "larger than the buffer"  # by itself
    STALE = "stale"  # an update would be more than `max_staleness` versions after its dispatch
    USES = "uses"  # it was part of as many updates as it may


@dataclass(frozen=True, slots=True)
class Removal:
    """A group that left: its samples are not needed any more."""

    group: int
    reason: str
    trained: bool  # it was part of an update
