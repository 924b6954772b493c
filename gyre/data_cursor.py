"""The place in the data: which groups, in the order of their dispatch, need not be rolled out again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class DataCursor:
    """Groups that were trained or dropped: all below `groups`, and those in `beyond` (ascending).

    `TaskOrder.task` says which task each had. A group that waits, runs or is in the open step is never among them.
    """

    groups: int
    beyond: tuple[int, ...] = ()

    @classmethod
    def of(cls, dispatched: int, unsettled: Collection[int]) -> Self:
        """Return the cursor where groups 0 to `dispatched` - 1 are settled except `unsettled`."""
        mark = min(unsettled, default=dispatched)
        return cls(mark, tuple(group for group in range(mark, dispatched) if group not in unsettled))

    def __contains__(self, group: int) -> bool:
        """Whether a group was trained or dropped."""
        return group < self.groups or group in self.beyond
