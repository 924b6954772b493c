"""A bound on how many steps or tool calls an execution took."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ...evaluation import CheckStage
from ..rule import Judging, Rule
from ..task_value import OR_FROM_TASK, FromTask
from ..verdict import BrokenRuleError, Verdict

Number = Annotated[float, Field(ge=0), OR_FROM_TASK]


class Measure(StrEnum):
    """What is counted."""

    STEPS = "steps"  # model calls of the main thread
    TOOL_CALLS = "tool_calls"


class LimitRule(Rule):
    """Passes within the bounds. Beyond one it fails, or falls linearly to 0 at `zero_above` or `zero_below`."""

    kind: Literal["limit"]
    stage: CheckStage = CheckStage.PROCESS
    of: Measure
    at_most: Number | None = None
    at_least: Number | None = None
    zero_above: Number | None = None
    zero_below: Number | None = None

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        bounds = (self.zero_below, self.at_least, self.at_most, self.zero_above)
        if self.at_most is None and self.at_least is None:
            raise ValueError("give at_most, at_least or both")
        if (self.zero_above is not None and self.at_most is None) or (
            self.zero_below is not None and self.at_least is None
        ):
            raise ValueError("zero_above needs at_most, and zero_below at_least")
        known = [bound for bound in bounds if bound is not None and not isinstance(bound, FromTask)]
        if known != sorted(known):
            raise ValueError("needs zero_below <= at_least <= at_most <= zero_above")
        return self

    async def judge(self, judging: Judging) -> Verdict:
        """Compare the count with the bounds."""
        subject = judging.subject
        found = subject.steps if self.of is Measure.STEPS else subject.tool_calls
        what = self.of.value.replace("_", " ")
        if found is None:
            raise BrokenRuleError(f"the number of {what} is not known")
        if self.at_most is not None and found > self.at_most:
            return Verdict(falling(found, self.at_most, self.zero_above), f"{found} {what}, {self.at_most:g} at most")
        if self.at_least is not None and found < self.at_least:
            return Verdict(
                falling(found, self.at_least, self.zero_below), f"{found} {what}, {self.at_least:g} at least"
            )
        return Verdict(1.0)


def falling(found: float, bound: float, zero: float | None) -> float:
    """Return 1 at the bound, 0 at `zero` and beyond, linear between them; 0 where there is no `zero`."""
    if zero is None or zero == bound:
        return 0.0
    return min(1.0, max(0.0, (zero - found) / (zero - bound)))
