"""How groups are made up, and what becomes of those that lose members or cannot matter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field


class OnLoss(StrEnum):
    """What happens when fewer than N members of a group can still get a valid score."""

    GO_ON = "go_on"  # with those that hold one, if they are at least min_group_members
    TOP_UP = "top_up"  # others take their places, at most max_replacements; then as go_on
    WAIT = "wait"  # others take their places; a group that cannot have N any more is dropped


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of groups. The defaults dispatch N executions and go on with those that hold a valid score."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    redundancy: Annotated[
        int, Field(ge=0, le=10_000, description="k, executions beyond N: the first N with a valid score count")
    ] = 0
    on_loss: Annotated[OnLoss, Field(description="what a group that loses members does")] = OnLoss.GO_ON
    max_replacements: Annotated[
        int | None,
        Field(ge=1, le=10_000, description="most executions added to a group that loses members; left out: N"),
    ] = None
    cancel_equal_after: Annotated[
        int | None,
        Field(ge=2, description="valid scores, all equal, after which a group is dropped; left out: never"),
    ] = None

    def __post_init__(self) -> None:
        """Raise ValueError where two settings contradict each other."""
        if self.max_replacements is not None and self.on_loss is OnLoss.GO_ON:
            raise ValueError("max_replacements: nothing is replaced with on_loss go_on; set on_loss to top_up or wait")

    def replacements(self, group_size: int) -> int:
        """Return the most executions that are added to one group of `group_size`."""
        if self.on_loss is OnLoss.GO_ON:
            return 0
        return group_size if self.max_replacements is None else self.max_replacements

    def stride(self, group_size: int) -> int:
        """Return the numbers that a group has for executions: group g has g*stride ... g*stride + stride - 1."""
        return group_size + self.redundancy + self.replacements(group_size)
