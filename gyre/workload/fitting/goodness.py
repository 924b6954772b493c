"""How well a fitted profile reproduces the trace that it was fitted to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
from scipy import stats

from ...arrays import FloatArray
from ..description import Description, Distribution, describe, distributions_of, samples
from ..profiles.generate import generate
from ..profiles.nominal import nominal_durations
from ..profiles.profile import Profile, Timeouts
from ..trace import Trace

FEWEST_GROUPS: Final = 400  # regenerated at least, so that the comparison is not the noise of the second sample


@dataclass(frozen=True, slots=True)
class Comparison:
    """One quantity, recorded and regenerated; `ks` is the Kolmogorov-Smirnov distance of the two samples (0 to 1)."""

    quantity: str
    ks: float
    recorded: Distribution
    regenerated: Distribution

    @property
    def mean_ratio(self) -> float | None:
        """Regenerated mean over recorded mean."""
        return self.regenerated.mean / self.recorded.mean if self.recorded.mean else None


@dataclass(frozen=True, slots=True)
class Goodness:
    """Comparisons of distributions, and both descriptions for what is not a distribution.

    `samples` holds the compared arrays (recorded, regenerated) by quantity, for plots.
    """

    comparisons: tuple[Comparison, ...]
    recorded: Description
    regenerated: Description
    samples: dict[str, tuple[FloatArray, FloatArray]]

    def to_json(self) -> dict[str, object]:
        """JSON-ready values, without the samples."""
        return {
            "comparisons": [
                asdict(comparison) | {"mean_ratio": comparison.mean_ratio} for comparison in self.comparisons
            ],
            "between_group_share": {
                "duration": [
                    self.recorded.groups.between_share_duration,
                    self.regenerated.groups.between_share_duration,
                ],
                "calls": [self.recorded.groups.between_share_calls, self.regenerated.groups.between_share_calls],
            },
        }


def goodness_of_fit(trace: Trace, profile: Profile, *, seed: int = 0) -> Goodness:
    """Regenerate about as many executions as the trace has, in at least 400 groups, and compare.

    Durations are compared up to the profile's time-outs only (a restricted mean): beyond them neither is known. The
    regenerated ones are nominal: model time at the profile's speeds.
    """
    groups = max(FEWEST_GROUPS, -(-len(trace.executions) // profile.training.group_size))
    again = generate(profile, groups=groups, seed=seed)
    limit = _limit(profile.timeouts)
    recorded_s = np.minimum(trace.executions["wall_s"].fill_null(0.0).to_numpy(), limit)
    again_s = nominal_durations(again, profile).unlimited_s
    if not (trace.executions["setup_s"] > 0.0).any():  # then the recorded times do not hold a set-up either
        again_s -= again.executions["setup_s"].to_numpy()
    again_s = np.minimum(again_s, limit)
    left = distributions_of(samples(trace), recorded_s)
    right = distributions_of(samples(again), again_s)
    pairs = {name: (left[name], right[name]) for name in left if len(left[name]) and len(right[name])}
    return Goodness(
        comparisons=tuple(_compare(name, *pair) for name, pair in pairs.items()),
        recorded=describe(trace, duration_s=recorded_s),
        regenerated=describe(again, duration_s=again_s),
        samples=pairs,
    )


def _compare(name: str, recorded: FloatArray, regenerated: FloatArray) -> Comparison:
    distance = float(stats.ks_2samp(recorded, regenerated, method="asymp").statistic)
    return Comparison(name, distance, Distribution.of(recorded), Distribution.of(regenerated))


def _limit(timeouts: Timeouts) -> float:
    return min(timeouts.harness_s or np.inf, timeouts.overall_s or np.inf)
