"""The life of every group, and how stale it was when it was trained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from ..groups import GroupState
from .execution_log import ExecutionRow

GROUPS_SCHEMA: Final[dict[str, pl.DataType]] = {
    "group": pl.Int64(),
    "task": pl.Int64(),  # place of its task in the data; null where the journal does not say
    "executions": pl.Int64(),
    "dispatched_s": pl.Float64(),
    "first_started_s": pl.Float64(),
    "ready_s": pl.Float64(),
    "taken_s": pl.Float64(),
    "consumed_s": pl.Float64(),
    "version_dispatched": pl.Int64(),
    "version_started_oldest": pl.Int64(),
    "version_trained": pl.Int64(),
    "staleness_dispatch": pl.Int64(),  # version trained - version at dispatch: scheduling staleness
    "staleness_dequeue": pl.Int64(),  # version held when a step first took the group - version at dispatch
    "staleness_start": pl.Int64(),  # version trained - oldest version at a member's start
    "token_staleness_oldest": pl.Int64(),  # version trained - version of the group's oldest token
    "token_staleness_mean": pl.Float64(),
    "token_staleness_newest": pl.Int64(),
    "tokens": pl.Int64(),  # sampled by the members
    "trained_tokens": pl.Int64(),  # of its micro-steps
    "state": pl.Enum([state.value for state in GroupState]),
    "dropped_reason": pl.String(),
}


@dataclass(slots=True)
class GroupRow:
    """One group so far; `open` counts the members that run or are scored."""

    group: int
    version: int
    dispatched_s: float
    task: int | None = None
    members: list[ExecutionRow] = field(default_factory=list)
    open: int = 0
    ready_s: float | None = None
    taken_s: float | None = None
    consumed_s: float | None = None
    step_taken: int | None = None  # of the first offer
    step_trained: int | None = None  # of the last
    trained_tokens: int = 0
    dropped_reason: str | None = None

    @property
    def is_ready(self) -> bool:
        """All members ended and were scored, and no step took the group yet."""
        return self.open == 0 and self.taken_s is None and self.dropped_reason is None

    @property
    def state(self) -> GroupState:
        """How far the group has come."""
        if self.dropped_reason is not None:
            return GroupState.DROPPED
        if self.consumed_s is not None:
            return GroupState.CONSUMED
        if self.taken_s is not None:
            return GroupState.TRAINING
        if self.open == 0:
            return GroupState.READY
        if all(member.ended for member in self.members):
            return GroupState.SCORING
        return GroupState.RUNNING if any(member.attempts for member in self.members) else GroupState.DISPATCHED

    def trained_versions(self) -> dict[int, int]:
        """Return tokens by the version that sampled them, over members with a valid score."""
        versions: dict[int, int] = {}
        for member in self.members:
            if member.valid:
                for version, tokens in member.version_tokens:
                    versions[version] = versions.get(version, 0) + tokens
        return {version: tokens for version, tokens in versions.items() if tokens}


def token_staleness(step: int, versions: dict[int, int]) -> tuple[int, float, int] | None:
    """Return the staleness in `step` of the oldest, the mean and the newest token; None without tokens.

    `versions` holds tokens by the version that sampled them; the mean is over tokens.
    """
    tokens = sum(versions.values())
    if not tokens:
        return None
    mean_version = sum(version * count for version, count in versions.items()) / tokens
    return step - min(versions), step - mean_version, step - max(versions)


def _row(group: GroupRow) -> tuple[object, ...]:
    started = [member.started_s for member in group.members if member.started_s is not None]
    versions_started = [member.version_started for member in group.members if member.version_started is not None]
    oldest_started = min(versions_started, default=None)
    step, taken = group.step_trained, group.step_taken
    stale = None if step is None else token_staleness(step, group.trained_versions())
    return (
        group.group,
        group.task,
        len(group.members),
        group.dispatched_s,
        min(started, default=None),
        group.ready_s,
        group.taken_s,
        group.consumed_s,
        group.version,
        oldest_started,
        step,
        None if step is None else step - group.version,
        None if taken is None else taken - group.version,
        None if step is None or oldest_started is None else step - oldest_started,
        *(stale or (None, None, None)),
        sum(member.tokens for member in group.members),
        group.trained_tokens,
        group.state.value,
        group.dropped_reason,
    )


def groups_frame(groups: Iterable[GroupRow]) -> pl.DataFrame:
    """Return groups (`GROUPS_SCHEMA`) in the order of their dispatch."""
    return pl.DataFrame([_row(group) for group in groups], schema=GROUPS_SCHEMA, orient="row")


def token_staleness_frame(groups: Iterable[GroupRow]) -> pl.DataFrame:
    """Return trained tokens by their staleness (staleness, tokens), over consumed groups."""
    counts: dict[int, int] = {}
    for group in groups:
        if group.consumed_s is not None and group.step_trained is not None:
            for version, tokens in group.trained_versions().items():
                staleness = group.step_trained - version
                counts[staleness] = counts.get(staleness, 0) + tokens
    return pl.DataFrame(sorted(counts.items()), schema={"staleness": pl.Int64(), "tokens": pl.Int64()}, orient="row")
