"""Where harnesses find the model, and where their calls are recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gyre.outcome import Outcome
from gyre.role import Role
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.tree import Refusal


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a harness needs to call the model; clients that want it append /v1 to the base URL."""

    base_url: str
    key: str


class Gateway(Protocol):
    """Opens and ends executions for harnesses, and has their calls."""

    def open(self, name: str, *, group: str, harness: str, task: str, seconds: float | None) -> Endpoint:
        """Let an execution call, for so many seconds before it is told to stop. A name is used once, ever.

        Raises:
            InputError: the name is taken, or no more executions may be open.
        """
        ...

    async def end(self, name: str, outcome: Outcome | None) -> Outcome:
        """Let it call no more; all that it called is recorded then.

        Without an outcome it is `completed`, or `harness_timeout` where it was told to stop.
        """
        ...

    async def calls(self, name: str) -> Sequence[CallRecord | Refusal]:
        """Return its calls as they were recorded, and in place of one that cannot be read, why."""
        ...


@dataclass(frozen=True, slots=True)
class CallFigures:
    """What an execution's calls came to."""

    version_tokens: tuple[tuple[int, int], ...]  # (version, tokens sampled), oldest first; -1: not known
    tool_calls: int  # calls of the policy that ended in tool calls
    steps: int  # calls that are no side calls

    @classmethod
    def of(cls, calls: Iterable[CallRecord | Refusal]) -> CallFigures:
        """Count."""
        tokens: Counter[int] = Counter()
        tool_calls = steps = 0
        for call in calls:
            if isinstance(call, Refusal) or not call.by_policy:
                continue
            steps += call.role is not Role.SIDE
            tool_calls += call.finish is Finish.TOOL_CALLS
            if call.versions is None:
                tokens[-1] += len(call.output_ids)
            else:
                for version, count in zip(*np.unique(call.versions, return_counts=True), strict=True):
                    tokens[int(version)] += int(count)
        return cls(tuple(sorted(tokens.items())), tool_calls, steps)
