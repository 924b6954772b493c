"""Members of a group are mostly alike and rarely far apart: their deviations as a mixture of two normals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ...arrays import FloatArray, Int64Array

ROUNDS: Final = 200
LEAST_GAIN: Final = 10.0  # in log-likelihood, for two more parameters; beyond any usual criterion
SHARE_RANGE: Final = (0.01, 0.5)
SMALLEST_SIGMA: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Mixture:
    """With probability `share` the deviation is normal with `sigma_outlier`, else with `sigma`."""

    sigma: float
    share: float
    sigma_outlier: float


def fit_mixture(value: FloatArray, group: Int64Array) -> Mixture | None:
    """Likeliest mixture for the deviations of members from their group; None if one normal does about as well.

    Expectation maximisation, twice: on deviations from the group's mean, which tells whether there are outliers, then
    with centres from which outliers hardly draw away. Groups of fewer than three say nothing and are left out.
    """
    value, code = _in_groups(value, group)
    size = np.bincount(code)
    mean = np.bincount(code, value) / np.maximum(size, 1)
    square = (value - mean[code]) ** 2 * (size / np.maximum(size - 1.0, 1.0))[code]
    whole = float(np.sqrt(square.mean())) if len(square) else 0.0
    if whole <= SMALLEST_SIGMA:
        return None
    start = Mixture(sigma=0.5 * whole, share=0.1, sigma_outlier=2.0 * whole)
    for _ in range(ROUNDS):
        start = _maximised(square, np.ones(len(square)), _weight(square, start))
    if _gain(square, start, whole) < LEAST_GAIN or not SHARE_RANGE[0] <= start.share <= SHARE_RANGE[1]:
        return None
    return _with_robust_centres(value, code, start)


def _with_robust_centres(value: FloatArray, code: Int64Array, mixture: Mixture) -> Mixture:
    centre = np.bincount(code, value) / np.bincount(code)
    for _ in range(ROUNDS):
        weight = _weight((value - centre[code]) ** 2, mixture)
        precision = (1.0 - weight) / mixture.sigma**2 + weight / mixture.sigma_outlier**2
        total = np.bincount(code, precision)
        centre = np.bincount(code, precision * value) / total
        # A member draws its own centre near: its squared deviation is smaller by its share of the precision.
        free = np.maximum(1.0 - precision / total[code], 0.0)
        mixture = _maximised((value - centre[code]) ** 2, free, weight)
    return mixture


def _in_groups(value: FloatArray, group: Int64Array) -> tuple[FloatArray, Int64Array]:
    """Values in groups of three or more, and the groups as 0, 1, 2, ..."""
    _, code = np.unique(group, return_inverse=True)
    keep = np.bincount(code)[code] >= 3
    _, code = np.unique(code[keep], return_inverse=True)
    return value[keep], code


def _maximised(square: FloatArray, free: FloatArray, weight: FloatArray) -> Mixture:
    """The likeliest mixture, given how probably each member is an outlier and its degrees of freedom."""

    def sigma(of: FloatArray) -> float:
        return max(SMALLEST_SIGMA, float(np.sqrt(np.sum(of * square) / max(float(np.sum(of * free)), SMALLEST_SIGMA))))

    return Mixture(sigma=sigma(1.0 - weight), share=float(weight.mean()), sigma_outlier=sigma(weight))


def _gain(square: FloatArray, mixture: Mixture, whole: float) -> float:
    """Log-likelihood of the mixture over that of one normal."""
    usual = np.log1p(-mixture.share) + _log_density(square, mixture.sigma)
    rare = np.log(max(mixture.share, SMALLEST_SIGMA)) + _log_density(square, mixture.sigma_outlier)
    return float(np.sum(np.logaddexp(usual, rare) - _log_density(square, whole)))


def _weight(square: FloatArray, mixture: Mixture) -> FloatArray:
    """Probability of each deviation to be an outlier."""
    share = min(max(mixture.share, SMALLEST_SIGMA), 1.0 - SMALLEST_SIGMA)
    odds = np.log(share) + _log_density(square, mixture.sigma_outlier)
    odds -= np.log1p(-share) + _log_density(square, mixture.sigma)
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -700.0, 700.0))), np.float64)


def _log_density(square: FloatArray, sigma: float) -> FloatArray:
    return np.asarray(-0.5 * square / sigma**2 - np.log(sigma), np.float64)
