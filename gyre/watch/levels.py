"""Conditions that hold a figure against a fixed level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from .clustered import Clustered
from .figures import COMPLETION, VALID, StepFigures
from .reading import Reading, above, below, percent, pooled
from .settings import AlertName, WatchSettings

_LONG_SHARE: Final = 0.25  # most that the longest octaves hold of all executions
_LENGTH_WINDOWS: Final = 10  # long executions are trained long after short ones that were offered with them
_MINUTE_S: Final = 60.0


def completion_low(settings: WatchSettings, steps: Sequence[StepFigures]) -> Iterator[Reading]:
    """Completion rate of trained groups."""
    mean, low = pooled(steps[-settings.window :], COMPLETION), settings.completion_low
    if mean.mean is not None and mean.count >= settings.min_executions:
        sentence = f"{percent(mean.mean)} of executions completed, fewer than {percent(low)}."
        yield below(AlertName.COMPLETION_LOW, mean.mean, low, sentence)


def kl_high(settings: WatchSettings, steps: Sequence[StepFigures]) -> Iterator[Reading]:
    """KL that the trainer reported with the last update."""
    value, high = steps[-1].metrics.get(settings.kl_metric), settings.kl_high
    if value is not None:
        yield above(AlertName.KL_HIGH, value, high, f"An update has a KL of {value:.3g}, more than {high:g}.")


def zero_variance_high(settings: WatchSettings, steps: Sequence[StepFigures]) -> Iterator[Reading]:
    """Groups whose scores are all the same, trained or dropped for it."""
    window = steps[-settings.window :]
    dropped = sum(step.flow.dropped_alike for step in window)
    groups = sum(step.scores.groups for step in window) + dropped
    if groups < settings.min_groups:
        return
    share = (sum(step.scores.alike for step in window) + dropped) / groups
    zero, one = (sum(step.scores.zero for step in window), sum(step.scores.one for step in window))
    sentence = (
        f"{percent(share)} of groups have the same score in every execution ({percent(zero / groups)} all 0, "
        f"{percent(one / groups)} all 1): nothing is learnt from them."
    )
    yield above(AlertName.ZERO_VARIANCE_HIGH, share, settings.zero_variance_high, sentence)


def invalid_high(settings: WatchSettings, steps: Sequence[StepFigures]) -> Iterator[Reading]:
    """Evaluations that failed, whatever became of their groups."""
    valid, reasons = Clustered(), Counter[str]()
    for step in steps[-settings.window :]:
        valid = valid + step.flow.means.get(VALID, Clustered())
        reasons.update(step.flow.failed)
    if valid.mean is None or valid.count < settings.min_executions:
        return
    most = f"; most often: {reasons.most_common(1)[0][0]}" if reasons else ""
    sentence = f"{percent(1.0 - valid.mean)} of evaluations failed{most}."
    yield above(AlertName.INVALID_HIGH, 1.0 - valid.mean, settings.invalid_high, sentence)


def staleness_high(settings: WatchSettings, steps: Sequence[StepFigures]) -> Iterator[Reading]:
    """Versions between a group's dispatch and its training."""
    window = steps[-settings.window :]
    groups = sum(step.groups for step in window)
    if groups >= settings.min_groups:
        mean = sum((step.staleness_mean or 0.0) * step.groups for step in window) / groups
        sentence = f"Groups are trained {mean:.1f} versions after their dispatch on average."
        yield above(AlertName.STALENESS_HIGH, mean, settings.staleness_high, sentence)


def long_tasks_starved(settings: WatchSettings, steps: Sequence[StepFigures]) -> Iterator[Reading]:
    """Share of the longest executions that was trained, over the share of all."""
    offered, trained = Counter[int](), Counter[int]()
    for step in steps[settings.skip_steps :][-_LENGTH_WINDOWS * settings.window :]:
        offered.update(step.flow.offered_octaves)
        trained.update(step.trained_octaves)
    first = first_long_octave(offered)
    if first is None or not trained:
        return
    long_offered, long_trained = (
        sum(count for octave, count in counts.items() if octave >= first) for counts in (offered, trained)
    )
    if long_offered < settings.min_executions:
        return
    overall = trained.total() / offered.total()
    sentence = (
        f"Of executions of {2.0**first / _MINUTE_S:,.0f} minutes and more, {percent(long_trained / long_offered)} were "
        f"trained; of all, {percent(overall)}."
    )
    ratio = long_trained / long_offered / overall
    yield below(AlertName.LONG_TASKS_STARVED, ratio, settings.starved_low, sentence)


def first_long_octave(offered: Counter[int]) -> int | None:
    """Return the least octave that, with those above it, holds at most a quarter of all; None where none does."""
    count, found = 0, None
    for octave in sorted(offered, reverse=True):
        count += offered[octave]
        if count > _LONG_SHARE * offered.total():
            break
        found = octave
    return found
