"""The figures of one run, with a JSON form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import polars as pl
from pydantic import Field

from .figures_base import Figures
from .record import RunRecord
from .use import IDLE_USES, CellUse, GpuUse

SUMMARY_VERSION: Final = 1
_HOUR_S: Final = 3600.0


class Spread(Figures):
    """Mean, median, 99th percentile and largest of some values; all None where there are none."""

    mean: float | None = None
    p50: float | None = None
    p99: float | None = None
    max: float | None = None


class Staleness(Figures):
    """Staleness of trained groups, in versions, by every definition in use; token figures are over groups.

    Percentiles are values that occur: the smallest one that at least that share of the groups does not exceed.
    """

    dispatch: Spread  # version trained - version at dispatch: scheduling staleness
    dequeue: Spread  # version held when a step took the group - version at dispatch
    start: Spread  # version trained - oldest version at a member's start
    token_oldest: Spread
    token_mean: Spread
    token_newest: Spread


class Fates(Figures):
    """How many executions or groups were dispatched, and what became of them: the other fields sum to `dispatched`.

    `unfinished` ones were still running, scored, waiting or in training when the run ended.
    """

    dispatched: int
    consumed: int
    lost: int
    unfinished: int
    lost_by_reason: dict[str, int]


class Bound(Figures):
    """The clairvoyant lower bound on the run's time, and the term of it that binds."""

    lower_bound_s: float
    fraction: float  # lower_bound_s / achieved time
    binding: str


class Summary(Figures):
    """What a run came to. Shares are of GPUs times wall time and sum to 1."""

    kind: str = "run"
    version: int = SUMMARY_VERSION
    complete: bool
    policy: str
    seed: int | None
    settings_digest: str
    wall_hours: float
    gpus: int
    cells: int
    steps: int
    step_s: Spread
    groups: Fates
    executions: Fates
    execution_s: Spread  # from start to end, of finished executions
    sampled_tokens: int
    trained_tokens: int
    gpu_hours: float
    gpu_share: dict[GpuUse, float]
    idle_share: float
    idle_by_reason: dict[GpuUse, float]  # shares of all GPU time; they sum to `idle_share`
    switches: int
    switch_s: Spread
    staleness: Staleness
    bound: Bound | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
    problems: dict[str, int] = Field(default_factory=dict)

    @property
    def run_name(self) -> str:
        """Policy and seed, in words."""
        return self.policy if self.seed is None else f"{self.policy}, seed {self.seed}"

    @property
    def problems_in_words(self) -> str:
        """What makes no sense in the journal, on one line; empty if nothing."""
        return ", ".join(f"{count} × {name}" for name, count in self.problems.items())

    def to_json(self) -> str:
        """Return the summary as indented JSON."""
        return self.model_dump_json(indent=2) + "\n"


def spread(values: pl.Series, interpolation: Literal["linear", "higher"] = "linear") -> Spread:
    """Return the spread of `values`; nulls do not count."""
    present = values.drop_nulls().cast(pl.Float64)
    if present.is_empty():
        return Spread()
    p50, p99 = (present.quantile(q, interpolation=interpolation) for q in (0.5, 0.99))
    whole = present.to_numpy()
    return Spread(mean=float(whole.mean()), p50=p50, p99=p99, max=float(whole.max()))


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return twelve hexadecimal digits that tell settings apart (SHA-256 of their JSON with sorted keys)."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def policy_of(settings: Mapping[str, Any]) -> str:
    """Return the policy's name in a journal's settings: `policy` or `policy.name`, else "run"."""
    policy = settings.get("policy")
    name = policy.get("name") if isinstance(policy, Mapping) else policy
    return name if isinstance(name, str) else "run"


def summarize(
    record: RunRecord,
    *,
    policy: str | None = None,
    seed: int | None = None,
    bound: Bound | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Summary:
    """Return a run's figures. `policy` and `seed` are read from the journal's settings where not given."""
    found_seed = record.settings.get("seed")
    share = _gpu_share(record)
    idle = {use: share[use] for use in IDLE_USES}
    finished = record.executions.filter(pl.col("started_s").is_not_null())
    switches = record.cells.filter(pl.col("use") == CellUse.SWITCHING.value)
    return Summary(
        complete=record.complete,
        policy=policy_of(record.settings) if policy is None else policy,
        seed=seed if seed is not None else found_seed if isinstance(found_seed, int) else None,
        settings_digest=settings_digest(record.settings),
        wall_hours=record.wall_s / _HOUR_S,
        gpus=record.gpus,
        cells=len(record.specs),
        steps=record.steps["updated_s"].count(),
        step_s=spread(record.steps["duration_s"]),
        groups=_group_fates(record),
        executions=_execution_fates(record),
        execution_s=spread(finished["finished_s"] - finished["started_s"]),
        sampled_tokens=int(record.executions["tokens"].sum()),
        trained_tokens=int(record.steps.filter(pl.col("updated_s").is_not_null())["tokens"].sum()),
        gpu_hours=record.gpus * record.wall_s / _HOUR_S,
        gpu_share=share,
        idle_share=sum(idle.values()),
        idle_by_reason=idle,
        switches=switches.height,
        switch_s=spread(switches["end_s"] - switches["start_s"]),
        staleness=_staleness(record),
        bound=bound,
        extra=dict(extra or {}),
        problems=record.problems,
    )


def _gpu_share(record: RunRecord) -> dict[GpuUse, float]:
    totals = dict(record.usage.group_by("use").agg(pl.col("gpu_s").sum()).iter_rows())
    whole = record.gpus * record.wall_s
    return {use: totals.get(use.value, 0.0) / whole if whole else 0.0 for use in GpuUse}


def _lost(record: RunRecord, unit: str) -> dict[str, int]:
    return dict(record.losses.filter(pl.col("unit") == unit).select("reason", "count").iter_rows())


def _group_fates(record: RunRecord) -> Fates:
    states = record.groups["state"].cast(pl.String)
    consumed, lost = int((states == "consumed").sum()), int((states == "dropped").sum())
    return Fates(
        dispatched=len(states),
        consumed=consumed,
        lost=lost,
        unfinished=len(states) - consumed - lost,
        lost_by_reason=_lost(record, "group"),
    )


def _execution_fates(record: RunRecord) -> Fates:
    consumed_groups = record.groups.filter(pl.col("state") == "consumed")["group"]
    kept = record.executions.filter(pl.col("lost_reason").is_null())
    consumed = kept.filter(pl.col("group").is_in(consumed_groups.implode())).height
    return Fates(
        dispatched=record.executions.height,
        consumed=consumed,
        lost=record.executions.height - kept.height,
        unfinished=kept.height - consumed,
        lost_by_reason=_lost(record, "execution"),
    )


def _staleness(record: RunRecord) -> Staleness:
    trained = record.groups.filter(pl.col("state") == "consumed")
    return Staleness(
        dispatch=spread(trained["staleness_dispatch"], "higher"),
        dequeue=spread(trained["staleness_dequeue"], "higher"),
        start=spread(trained["staleness_start"], "higher"),
        token_oldest=spread(trained["token_staleness_oldest"], "higher"),
        token_mean=spread(trained["token_staleness_mean"]),
        token_newest=spread(trained["token_staleness_newest"], "higher"),
    )
