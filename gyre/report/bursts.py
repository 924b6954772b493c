"""Step times of two runs in parts that may be resampled: whole bursts of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from .record import RunRecord

_FEWEST: Final = 4


def steps_a_burst(settings: Mapping[str, Any]) -> int:
    """Return `mu` of a run's policy, the steps between two publishes; 1 where its settings do not say."""
    policy = settings.get("policy_settings")
    mu = policy.get("mu") if isinstance(policy, Mapping) else None
    return mu if isinstance(mu, int) and mu > 0 else 1


def paired_bursts(base: RunRecord, own: RunRecord) -> tuple[list[float], list[float]] | None:
    """Return both runs' times (seconds) in chunks of steps that are whole bursts of both; None for fewer than four.

    Within a burst the first step has all the wait for rollouts, so single steps are no independent draws. Steps after
    the last whole chunk count to it: sums of the chunks are the runs' times.
    """
    times_s = [run.steps["duration_s"].drop_nulls().to_numpy() for run in (base, own)]
    steps = len(times_s[0])
    chunk = math.lcm(steps_a_burst(base.settings), steps_a_burst(own.settings))
    if steps != len(times_s[1]) or steps // chunk < _FEWEST:
        return None
    starts = np.arange(0, steps - chunk + 1, chunk)
    base_s, own_s = (np.add.reduceat(run_s, starts).tolist() for run_s in times_s)
    return base_s, own_s
