"""Fit of the rewards of groups."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ...arrays import FloatArray
from ..description.variance import variance_components
from ..profiles.profile import Reward

MOST_LEVELS: Final = 100
ON_A_LEVEL: Final = 0.95  # share of rewards that must be a multiple of 1 / levels
CONCENTRATION_RANGE: Final = (0.1, 1000.0)


def fit_reward(executions: pl.DataFrame, notes: dict[str, str]) -> Reward:
    """Reward law of groups with two or more known rewards; the default, with a note, where there are none.

    `executions` has the columns `group` and `reward`. Rewards outside [0, 1] are rescaled to it by their range.
    """
    known = executions.select("group", "reward").drop_nulls()
    known = known.filter(pl.len().over("group") >= 2)
    if known.is_empty():
        notes["reward"] = "Assumed: the trace has no group with two rewards."
        return Reward()
    reward = known["reward"].to_numpy()
    if reward.min() < 0.0 or reward.max() > 1.0:
        notes["reward"] = f"Rewards from {reward.min():g} to {reward.max():g} were rescaled to [0, 1]."
        known = known.with_columns(reward=(pl.col("reward") - reward.min()) / (reward.max() - reward.min()))
    groups = known.group_by("group").agg(
        mean=pl.col("reward").mean(), flat=pl.col("reward").min() == pl.col("reward").max()
    )
    flat = groups.filter("flat")["mean"].to_numpy()
    mixed = known.join(groups.filter(~pl.col("flat")).select("group"), on="group")
    mean, concentration = _beta(mixed)
    return Reward(
        flat_groups=len(flat) / len(groups),
        flat_one=float(np.mean(flat >= 0.5)) if len(flat) else 0.5,
        mean=mean,
        concentration=concentration,
        levels=_levels(known["reward"].to_numpy()),
    )


def _beta(mixed: pl.DataFrame) -> tuple[float, float]:
    """Mean and concentration of the groups' Beta, from the variance of rewards between groups (method of moments)."""
    if mixed.is_empty():
        return 0.5, 2.0
    reward = mixed["reward"].to_numpy()
    mean = float(np.clip(reward.mean(), 0.01, 0.99))
    components = variance_components(reward, mixed["group"].to_numpy())
    if components is None or components[0] <= 0.0:
        return mean, CONCENTRATION_RANGE[1] if components else 2.0
    return mean, float(np.clip(mean * (1.0 - mean) / components[0] - 1.0, *CONCENTRATION_RANGE))


def _levels(reward: FloatArray) -> int:
    """The fewest levels of which nearly all rewards are multiples."""
    for levels in range(1, MOST_LEVELS):
        on = np.abs(reward * levels - np.rint(reward * levels)) < 1e-3 * levels
        if np.mean(on) >= ON_A_LEVEL:
            return levels
    return MOST_LEVELS
