"""The figures of a step, from the groups that it trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from .figures import Alike, Flow, StepFigures
from .rollouts import ByGroup, GroupTally


def step_figures(
    step: int, time_s: float, tallies: list[GroupTally], metrics: dict[str, float], flow: Flow
) -> StepFigures:
    """Return the figures of a step that trained these groups."""
    means, scores, tokens = ByGroup(), Alike(), Counter[int]()
    for number, tally in enumerate(tallies):
        for key, (count, total) in tally.means.items():
            means.add(key, number, count, total)
        tally.count_scores(scores)
        tokens.update({step - version: count for version, count in tally.tokens.items()})
    stale = [step - tally.version for tally in tallies]
    sampled = tokens.total()
    return StepFigures(
        step=step,
        time_s=time_s,
        groups=len(tallies),
        executions=sum(tally.executions for tally in tallies),
        means=means.means(),
        outcomes=_sum(tally.outcomes for tally in tallies),
        scores=scores,
        staleness_mean=sum(stale) / len(stale) if stale else None,
        staleness_max=max(stale, default=None),
        token_staleness_mean=sum(age * count for age, count in tokens.items()) / sampled if sampled else None,
        token_staleness_max=max((age for age, count in tokens.items() if count), default=None),
        metrics=metrics,
        trained_octaves=_sum(tally.octaves for tally in tallies),
        flow=flow,
    )


def _sum(counters: Iterable[Counter[Any]]) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for counter in counters:
        total.update(counter)
    return total
