"""Small programs for tests, written call by call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gyre.workload.program import Program


@dataclass(frozen=True)
class SmallCall:
    """One call of a test's execution; indices are local to the execution."""

    input_tokens: int
    output_tokens: int
    after: tuple[int, ...] = ()
    wait_s: float = 0.0
    prefix_call: int = -1
    prefix_tokens: int = 0
    thread: int = 0


@dataclass(frozen=True)
class SmallExecution:
    """One execution of a test's program."""

    calls: Sequence[SmallCall] = field(default_factory=tuple)
    group: int = 0
    setup_s: float = 0.0
    scoring_s: float = 0.0
    paths: tuple[int, ...] = ()
    outcome: int = 0


def program_of(executions: Sequence[SmallExecution]) -> Program:
    """The flat arrays of `executions`."""
    calls = [call for execution in executions for call in execution.calls]
    successors = [
        [later for later, follower in enumerate(execution.calls) if index in follower.after]
        for execution in executions
        for index in range(len(execution.calls))
    ]
    return Program(
        execution_ids=tuple(f"x{index}" for index in range(len(executions))),
        group=np.array([execution.group for execution in executions], np.int32),
        group_ids=tuple(f"g{index}" for index in range(1 + max(execution.group for execution in executions))),
        call_start=_starts([len(execution.calls) for execution in executions]),
        thread_count=np.array([1 + max((c.thread for c in e.calls), default=0) for e in executions], np.int32),
        setup_s=np.array([execution.setup_s for execution in executions], np.float64),
        scoring_s=np.array([execution.scoring_s for execution in executions], np.float64),
        outcome=np.array([execution.outcome for execution in executions], np.int8),
        reward=np.zeros(len(executions)),
        thread=np.array([call.thread for call in calls], np.int32),
        role=np.zeros(len(calls), np.int8),
        input_tokens=np.array([call.input_tokens for call in calls], np.int64),
        output_tokens=np.array([call.output_tokens for call in calls], np.int64),
        prefix_call=np.array([call.prefix_call for call in calls], np.int32),
        prefix_tokens=np.array([call.prefix_tokens for call in calls], np.int64),
        wait_s=np.array([call.wait_s for call in calls], np.float64),
        dependencies=np.array([len(call.after) for call in calls], np.int32),
        successor_start=_starts([len(followers) for followers in successors]),
        successor=np.array([f for followers in successors for f in followers], np.int32),
        path_start=_starts([len(execution.paths) for execution in executions]),
        path_tokens=np.array([tokens for execution in executions for tokens in execution.paths], np.int64),
    )


def _starts(lengths: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
