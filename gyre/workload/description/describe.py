"""Describe a trace in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import polars as pl

from ...arrays import FloatArray
from ..schema import WaitKind
from ..trace import Trace
from .samples import Samples, samples
from .variance import between_group_share

LONG_WAIT_S: Final = 60.0
GROUP_MEMBERS: Final = 4  # groups this large are used for the spread between members


@dataclass(frozen=True, slots=True)
class Distribution:
    """A sample in six numbers, in the quantity's own unit."""

    n: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, value: FloatArray) -> Distribution:
        """The distribution of a non-empty sample."""
        p50, p90, p99 = np.quantile(value, (0.5, 0.9, 0.99))
        return cls(len(value), float(value.mean()), float(p50), float(p90), float(p99), float(value.max()))


@dataclass(frozen=True, slots=True)
class Groups:
    """How members of groups differ; None where the trace does not tell.

    `longest_over_median` is over groups of four or more: longest member's time over the median member's. The shares are
    those of the variance of a logarithm that lies between groups of two or more.
    """

    count: int
    rewarded: int  # with two or more known rewards
    flat: int  # of those: no spread in reward
    between_share_duration: float | None
    between_share_calls: float | None
    longest_over_median: Distribution | None


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds that calls waited after their release, by kind of wait; `long_share` is the share of waits over 60 s."""

    calls: int
    total_s: float
    long_share: float


@dataclass(frozen=True, slots=True)
class Description:
    """What a trace holds. Time is wall time, or nominal time at `speeds` where the trace has no wall time."""

    source: str
    executions: int
    synthetic_executions: int
    synthetic_scale: str | None
    calls: int
    tools: int
    outcomes: dict[str, int]
    roles: dict[str, int]
    relations: dict[str, int]
    prefix_reuse: float | None  # share of input tokens that the parent call's context already held
    mean_reward: float | None
    compactions: int
    compacting_executions: int
    sub_agents: int
    sub_agent_executions: int
    groups: Groups
    waits: dict[str, Waits]
    distributions: dict[str, Distribution]

    def to_json(self) -> dict[str, object]:
        """JSON-ready values."""
        return asdict(self)


def describe(trace: Trace, *, duration_s: FloatArray | None = None) -> Description:
    """Numbers that describe a valid trace.

    `duration_s`, one value an execution of the trace, stands in for the wall time that a generated trace does not have
    (see `nominal_durations`).
    """
    taken = samples(trace)
    arrays = distributions_of(taken, duration_s)
    executions, calls = trace.executions, trace.calls
    inputs = int(calls["input_tokens"].sum())
    scales = executions["synthetic_scale"].drop_nulls().unique(maintain_order=True).to_list()
    reward = executions["reward"].drop_nulls()
    return Description(
        source=", ".join(executions["source"].unique(maintain_order=True).to_list()),
        executions=len(executions),
        synthetic_executions=int(executions["synthetic"].sum()),
        synthetic_scale="; ".join(scales) or None,
        calls=len(calls),
        tools=len(trace.tools),
        outcomes=_counts(executions["outcome"]),
        roles=_counts(calls["role"]),
        relations=_counts(calls["relation"]),
        prefix_reuse=float(calls["prefix_tokens"].sum() / inputs) if inputs else None,
        mean_reward=float(reward.to_numpy().mean()) if len(reward) else None,
        compactions=len(taken.compactions),
        compacting_executions=taken.compactions["execution"].n_unique(),
        sub_agents=len(taken.sub_agents),
        sub_agent_executions=int((taken.executions["sub_agents"] > 0).sum()),
        groups=_groups(trace, taken, duration_s),
        waits=_waits(taken),
        distributions={name: Distribution.of(value) for name, value in arrays.items() if len(value)},
    )


def distributions_of(taken: Samples, duration_s: FloatArray | None = None) -> dict[str, FloatArray]:
    """The samples' arrays, with the spread of groups and, if given, `duration_s` (one an execution of the trace)."""
    arrays = taken.arrays()
    arrays["longest_over_median"] = _longest_over_median(_timed(taken, duration_s))
    return arrays if duration_s is None else {"duration_s": duration_s[duration_s > 0.0], **arrays}


def _timed(taken: Samples, duration_s: FloatArray | None) -> pl.DataFrame:
    """Executions with a known duration, in the column `wall_s`."""
    executions = taken.executions
    if duration_s is not None:
        rows = executions["execution"].to_numpy()
        executions = executions.with_columns(wall_s=pl.Series(duration_s[rows], dtype=pl.Float64))
    return executions.filter(pl.col("wall_s") > 0.0)


def _longest_over_median(timed: pl.DataFrame) -> FloatArray:
    """Longest member's time over the median member's, for each group of `GROUP_MEMBERS` or more."""
    large = timed.filter(pl.len().over("group") >= GROUP_MEMBERS).group_by("group", maintain_order=True)
    spread = large.agg(ratio=pl.col("wall_s").max() / pl.col("wall_s").median())["ratio"]
    return spread.cast(pl.Float64).to_numpy()


def _counts(column: pl.Series) -> dict[str, int]:
    counted = column.cast(pl.String).value_counts(sort=True)
    return {str(name): int(count) for name, count in counted.rows()}


def _waits(taken: Samples) -> dict[str, Waits]:
    waits = {}
    for kind in WaitKind:
        wait = taken.turns.filter(pl.col("wait_kind") == kind.value)["wait_s"].to_numpy()
        if len(wait):
            total = float(wait.sum())
            long = float(wait[wait > LONG_WAIT_S].sum())
            waits[kind.value] = Waits(len(wait), total, long / total if total > 0.0 else 0.0)
    return waits


def _groups(trace: Trace, taken: Samples, duration_s: FloatArray | None) -> Groups:
    timed = _timed(taken, duration_s)
    spread = _longest_over_median(timed)
    reward = trace.executions.filter(pl.col("reward").is_not_null()).group_by("group_id")
    rewarded = reward.agg(n=pl.len(), flat=pl.col("reward").min() == pl.col("reward").max()).filter(pl.col("n") >= 2)
    return Groups(
        count=len(trace.groups),
        rewarded=len(rewarded),
        flat=int(rewarded["flat"].sum()),
        between_share_duration=_between(timed, "wall_s"),
        between_share_calls=_between(taken.executions, "calls"),
        longest_over_median=Distribution.of(spread) if len(spread) else None,
    )


def _between(executions: pl.DataFrame, column: str) -> float | None:
    if executions.is_empty():
        return None
    value = np.log(executions[column].cast(pl.Float64).to_numpy())
    return between_group_share(value, executions["group"].to_numpy())
