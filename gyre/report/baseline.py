"""A run against a baseline on the same tasks, such as the untrained model: paired by task."""

from __future__ import annotations

from typing import Any, Final

import polars as pl
from pydantic import Field

from ..errors import InputError
from ..outcome import Outcome
from .figures_base import Figures
from .interval import mean_interval
from .record import RunRecord

_LATE_SHARE: Final = 1 / 3  # of the run's versions: what it came to
_FIGURES: Final = {"completion": "completion rate", "score": "mean score", "tool_calls": "tool calls"}


class Difference(Figures):
    """One figure, as the mean over tasks of each task's mean over executions; low to high is its 95 % interval."""

    figure: str
    tasks: int  # that have it in both runs
    own: float
    baseline: float
    difference: float
    low: float | None  # None: fewer than two tasks
    high: float | None


class BaselineComparison(Figures):
    """A run less its baseline. `late` is of groups dispatched in the last third of the run's versions."""

    tasks: int  # in both runs
    only_here: int
    only_baseline: int
    whole: list[Difference]
    late: list[Difference]
    notes: list[str] = Field(default_factory=list)


def compare_with_baseline(own: RunRecord, baseline: RunRecord) -> BaselineComparison:
    """Return how a run differs from its baseline, task by task.

    The interval is a paired bootstrap over tasks (see `interval`). Executions that were cancelled or have not ended say
    nothing; scores are those of valid evaluations.

    Raises:
        InputError: a journal names no tasks, or the runs have no task in common.
    """
    for record, which in ((own, "the run"), (baseline, "the baseline")):
        if record.groups["task"].null_count():
            raise InputError(f"{which}: its journal (version 1) names no tasks; make the run again to compare by task")
    here, there = _by_task(own), _by_task(baseline)
    shared = here.join(there, on="task", how="inner").height
    if not shared:
        raise InputError("the run and the baseline have no task in common; give a baseline on the same tasks")
    last = own.groups["version_dispatched"].max()
    late = pl.col("version_dispatched") > (1 - _LATE_SHARE) * (last if isinstance(last, int) else 0)
    notes = []
    updates = baseline.steps["updated_s"].count()
    if updates:
        notes.append(f"The baseline was trained itself, for {updates} updates: it is no untrained model.")
    if not own.complete or not baseline.complete:
        notes.append("Not both runs are complete.")
    return BaselineComparison(
        tasks=shared,
        only_here=here.height - shared,
        only_baseline=there.height - shared,
        whole=_differences(here, there),
        late=_differences(_by_task(own, late), there),
        notes=notes,
    )


def _by_task(record: RunRecord, which: Any = True) -> pl.DataFrame:
    """Return each task's means, over the executions of its groups that satisfy `which`."""
    lost_by_us = (pl.col("outcome").is_null() & pl.col("ended_s").is_null()) | (
        (pl.col("outcome") == Outcome.CANCELLED.value).fill_null(False)
    )
    cancelled = pl.col("outcome").is_null() & pl.col("finished_s").is_null()  # lost ones have an end
    rows = record.executions.join(record.groups.select("group", "task", "version_dispatched"), on="group")
    return (
        rows.filter(which, ~lost_by_us, ~cancelled)
        .with_columns(completion=(pl.col("outcome") == Outcome.COMPLETED.value).fill_null(False).cast(pl.Float64))
        .group_by("task", maintain_order=True)
        .agg(
            pl.col("completion").mean(),
            pl.col("score").filter(pl.col("valid").fill_null(False)).mean(),
            pl.col("tool_calls").cast(pl.Float64).mean(),
        )
    )


def _differences(own: pl.DataFrame, baseline: pl.DataFrame) -> list[Difference]:
    pairs = own.join(baseline, on="task", how="inner", suffix="_baseline", maintain_order="left").sort("task")
    found = []
    for name, words in _FIGURES.items():
        both = pairs.select(name, f"{name}_baseline").drop_nulls()
        if both.is_empty() or (name == "tool_calls" and not both.to_numpy().any()):
            continue
        values, base = (both[column].to_numpy() for column in both.columns)
        interval = mean_interval((values - base).tolist())
        found.append(
            Difference(
                figure=words,
                tasks=both.height,
                own=float(values.mean()),
                baseline=float(base.mean()),
                difference=float((values - base).mean()),
                low=None if interval is None else interval[0],
                high=None if interval is None else interval[1],
            )
        )
    return found
