"""Several runs side by side: policies on the same workload, over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from pydantic import Field

from .bursts import paired_bursts
from .figures_base import Figures
from .interval import Interval, ratio_interval
from .record import RunRecord
from .summary import Bound, Spread, Summary, spread
from .use import IDLE_USES, GpuUse

COMPARISON_VERSION: Final = 1
_INTERVAL_NOTES: Final = {
    "seeds": "Intervals of the speed-up: 95 % bootstrap over paired seeds.",
    "bursts": "One seed only: intervals of the speed-up resample whole bursts (the steps from one publish to the next) "
    "of the paired runs. They tell how steady it is within this run, not how it varies between runs; more seeds tell "
    "that.",
}


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """One run of a comparison; `summary` names its policy and its seed."""

    record: RunRecord
    summary: Summary

    @property
    def policy(self) -> str:
        """The policy's name."""
        return self.summary.policy


class PolicyFigures(Figures):
    """One policy over its seeds.

    Hours are the mean over runs that came to their end, or if there is none, over those that were stopped; shares and
    staleness are of all its runs together.
    """

    policy: str
    seeds: list[int | None]
    complete: bool
    runs_complete: int
    hours: float
    hours_by_seed: list[float]
    speed_up: float | None  # hours of the baseline / hours of this policy, over the seeds that both completed
    speed_up_interval: Interval | None
    published_speed_up: float | None
    gpu_share: dict[GpuUse, float]
    idle_share: float
    idle_by_reason: dict[GpuUse, float]
    staleness: Spread  # scheduling staleness: version trained - version at dispatch
    token_staleness: Spread  # of all trained tokens
    executions: int
    executions_lost: int
    lost_by_reason: dict[str, int]
    bound: Bound | None  # means over seeds, and the binding term of most of them
    step_s: Spread


class Comparison(Figures):
    """All policies of a comparison in the order given, and the runs behind them."""

    kind: str = "comparison"
    version: int = COMPARISON_VERSION
    complete: bool
    baseline: str
    policies: list[PolicyFigures]
    runs: list[Summary]
    missing: list[str] = Field(default_factory=list)  # names of planned runs that left no journal
    notes: list[str] = Field(default_factory=list)

    @property
    def all_notes(self) -> list[str]:
        """The notes, what is wrong with the runs, and how the intervals were made."""
        intervals = [row.speed_up_interval for row in self.policies]
        sources = {interval.source for interval in intervals if interval is not None}
        return [
            *self.notes,
            *self._run_notes(),
            *(note for source, note in _INTERVAL_NOTES.items() if source in sources),
        ]

    def _run_notes(self) -> Iterator[str]:
        yield from (f"{name}: no journal." for name in self.missing)
        for run in self.runs:
            if not run.complete:
                yield f"{run.run_name}: not complete, {run.steps} {'step' if run.steps == 1 else 'steps'} done."
            if run.problems:
                yield f"{run.run_name}: its journal is damaged ({run.problems_in_words}); the figures leave that out."

    def to_json(self) -> str:
        """Return the comparison as indented JSON."""
        return self.model_dump_json(indent=2) + "\n"


def compare_runs(
    results: Sequence[RunResult],
    *,
    baseline: str | None = None,
    intervals: Mapping[str, Interval] | None = None,
    published: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
    order: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> Comparison:
    """Compare runs by policy.

    Args:
        results: at least one run; those of a policy are told apart by their seeds, which pair them across policies.
        baseline: policy that speed-ups refer to; left out: the first run's.
        intervals: confidence intervals of speed-ups by policy, where the caller has better ones than those made here.
        published: speed-ups by policy, over the same baseline, that others published.
        notes: lines to show with the comparison, for example the staleness that the policies were matched to.
        order: policies in the order to show them; those not named come last, in the order of their first runs.
        missing: names of planned runs that there is nothing of; with any, the comparison is not complete.

    Raises:
        ValueError: there is no run, or none of the baseline.
    """
    by_policy: dict[str, list[RunResult]] = {}
    for result in results:
        by_policy.setdefault(result.policy, []).append(result)
    if not by_policy:
        raise ValueError("nothing to compare: no runs")
    by_policy = {policy: by_policy[policy] for policy in dict.fromkeys((*order, *by_policy)) if policy in by_policy}
    baseline = next(iter(by_policy)) if baseline is None else baseline
    if baseline not in by_policy:
        raise ValueError(f"no run of the baseline policy {baseline!r}; there are {', '.join(by_policy)}")
    rows = [
        _figures(policy, runs, by_policy[baseline], (intervals or {}).get(policy), (published or {}).get(policy))
        for policy, runs in by_policy.items()
    ]
    return Comparison(
        complete=not missing and all(row.complete for row in rows),
        baseline=baseline,
        policies=rows,
        runs=[result.summary for result in results],
        missing=list(missing),
        notes=list(notes),
    )


def _figures(
    policy: str,
    runs: Sequence[RunResult],
    base: Sequence[RunResult],
    interval: Interval | None,
    published: float | None,
) -> PolicyFigures:
    speed_up, own_interval = _speed_up(runs, base) if runs is not base else (1.0, None)
    summaries = [run.summary for run in runs]
    gpu_hours = sum(summary.gpu_hours for summary in summaries)
    share = {
        use: sum(summary.gpu_share[use] * summary.gpu_hours for summary in summaries) / gpu_hours if gpu_hours else 0.0
        for use in GpuUse
    }
    lost = sum((Counter(summary.executions.lost_by_reason) for summary in summaries), Counter[str]())
    idle = {use: share[use] for use in IDLE_USES}
    trained = pl.concat([run.record.groups.filter(pl.col("state") == "consumed") for run in runs])
    hours = [summary.wall_hours for summary in summaries if summary.complete or not any(s.complete for s in summaries)]
    return PolicyFigures(
        policy=policy,
        seeds=[summary.seed for summary in summaries],
        complete=all(summary.complete for summary in summaries),
        runs_complete=sum(summary.complete for summary in summaries),
        hours=sum(hours) / len(hours),
        hours_by_seed=[summary.wall_hours for summary in summaries],
        speed_up=speed_up,
        speed_up_interval=None if runs is base else interval or own_interval,
        published_speed_up=published,
        gpu_share=share,
        idle_share=sum(idle.values()),
        idle_by_reason=idle,
        staleness=spread(trained["staleness_dispatch"], "higher"),
        token_staleness=token_spread(pl.concat([run.record.token_staleness for run in runs])),
        executions=sum(summary.executions.dispatched for summary in summaries),
        executions_lost=lost.total(),
        lost_by_reason=dict(lost.most_common()),
        bound=_mean_bound([summary.bound for summary in summaries if summary.bound is not None]),
        step_s=spread(pl.concat([run.record.steps["duration_s"] for run in runs])),
    )


def _mean_bound(bounds: Sequence[Bound]) -> Bound | None:
    """Return the means over seeds, and the term that binds most of them (of equally many the one met first)."""
    if not bounds:
        return None
    (binding, _), *_ = Counter(bound.binding for bound in bounds).most_common(1)
    return Bound(
        lower_bound_s=sum(bound.lower_bound_s for bound in bounds) / len(bounds),
        fraction=sum(bound.fraction for bound in bounds) / len(bounds),
        binding=binding,
    )


def _speed_up(runs: Sequence[RunResult], base: Sequence[RunResult]) -> tuple[float | None, Interval | None]:
    """Return hours of `base` / hours of `runs` over the seeds that both completed, and an interval if there is one."""
    base_by_seed = {run.summary.seed: run for run in base if run.summary.complete}
    pairs = [
        (base_by_seed[run.summary.seed], run)
        for run in runs
        if run.summary.complete and run.summary.seed in base_by_seed
    ]
    if not pairs:
        return None, None
    base_s, own_s = ([run.record.wall_s for run in side] for side in zip(*pairs, strict=True))
    speed_up = sum(base_s) / sum(own_s) if sum(own_s) else None
    if len(pairs) > 1:
        return speed_up, ratio_interval(base_s, own_s, source="seeds")
    bursts = paired_bursts(pairs[0][0].record, pairs[0][1].record)
    return speed_up, None if bursts is None else ratio_interval(*bursts, source="bursts")


def token_spread(counts: pl.DataFrame) -> Spread:
    """Return the spread of trained tokens' staleness from a frame (staleness, tokens)."""
    by_staleness = counts.group_by("staleness").agg(pl.col("tokens").sum()).sort("staleness")
    tokens = int(by_staleness["tokens"].sum())
    if not tokens:
        return Spread()
    values = by_staleness["staleness"].to_list()
    below = by_staleness["tokens"].cum_sum().to_list()
    at_most: dict[float, Any] = {
        q: next(v for v, n in zip(values, below, strict=True) if n >= q * tokens) for q in (0.5, 0.99)
    }
    mean = int((by_staleness["staleness"] * by_staleness["tokens"]).sum()) / tokens
    return Spread(mean=mean, p50=at_most[0.5], p99=at_most[0.99], max=values[-1])
