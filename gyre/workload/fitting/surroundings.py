"""Fits of the times around an execution's calls: set-up, the wait before the first call, scoring.

`executions` is the frame of `Samples`; `notes` takes what the provenance says of a table.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ...arrays import FloatArray
from ..profiles.profile import Lognormal, TwoPart
from .laws import fit_lognormal, fit_two_part_members

TAIL_QUANTILE: Final = 0.99  # where the tail begins otherwise
RESOLUTION_S: Final = 0.001
# Used where the trace does not hold the quantity.
PUBLISHED_SETUP_S: Final = Lognormal(median=6.6, sigma=2.093, cap=5797.0)  # p50 6.6 s, p99 858 s
PUBLISHED_SCORING_S: Final = Lognormal(median=5.0, sigma=1.366, cap=600.0)  # p50 5 s, p99 120 s
NO_SETUP_S: Final = Lognormal(median=RESOLUTION_S, cap=RESOLUTION_S)


def fit_first_wait(executions: pl.DataFrame, notes: dict[str, str]) -> TwoPart | None:
    """The wait before the first call, where most executions have one: a rollout of which only its duration is known."""
    value = executions["first_wait_s"].to_numpy().astype(np.float64)
    if np.median(value) <= 0.0:
        return None
    notes["first_wait_s"] = notes["calls"]
    return fit_two_part_members(
        value,
        executions["group"].to_numpy(),
        tail_from=max(float(np.quantile(value, TAIL_QUANTILE)), 2.0 * RESOLUTION_S),
        floor=RESOLUTION_S,
    )


def fit_setup(executions: pl.DataFrame, notes: dict[str, str]) -> Lognormal:
    """The time before the first call's release; none where all that is known is a whole duration."""
    if executions["only_duration"].all():
        notes["setup_s"] = "None: the recorded durations are taken to hold it."
        return NO_SETUP_S
    return _or_published(executions["setup_s"], PUBLISHED_SETUP_S, "setup_s", notes)


def fit_scoring(executions: pl.DataFrame, notes: dict[str, str]) -> Lognormal:
    """The time from the end of an execution to its score."""
    return _or_published(executions["scoring_s"], PUBLISHED_SCORING_S, "scoring_s", notes)


def _or_published(column: pl.Series, published: Lognormal, name: str, notes: dict[str, str]) -> Lognormal:
    value = positive(column)
    if not len(value):
        notes[name] = "Published for Terminal-Bench (p50, p99); the trace does not hold it."
        return published
    return fit_lognormal(value, cap=float(value.max()))


def positive(column: pl.Series) -> FloatArray:
    """The values above 0 of a column."""
    return column.drop_nulls().cast(pl.Float64).filter(column.drop_nulls() > 0).to_numpy()
