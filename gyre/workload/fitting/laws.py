"""Fits of single distributions to samples."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from ...arrays import FloatArray, Int64Array
from ..description.variance import nested_components, variance_components
from ..profiles.profile import Correlated, Lognormal, TwoPart

ALPHA_RANGE: Final = (0.01, 20.0)
FEWEST_IN_TAIL: Final = 10


def fit_lognormal(
    value: FloatArray, cut: npt.NDArray[np.bool_] | None = None, *, cap: float | None = None
) -> Lognormal:
    """Maximum-likelihood lognormal of positive values; those with `cut` true are lower bounds (right-censored)."""
    log = np.log(value)
    if cut is None or not cut.any() or cut.all():
        return Lognormal(median=float(np.exp(log.mean())), sigma=float(log.std()), cap=cap)
    data = stats.CensoredData(uncensored=log[~cut], right=log[cut])
    centre, sigma = stats.norm.fit(data)
    return Lognormal(median=float(np.exp(centre)), sigma=float(sigma), cap=cap)


def fit_correlated(
    value: FloatArray, group: Int64Array, cut: npt.NDArray[np.bool_] | None = None, *, cap: float | None = None
) -> Correlated:
    """Lognormal with effects of group and member, one positive value a member.

    The total variance comes from the censored fit, its division from an analysis of variance over groups of two or more
    (values cut short enter that at their bound, which understates both parts alike).
    """
    total = fit_lognormal(value, cut)
    components = variance_components(np.log(value), group)
    share = 0.0 if components is None or sum(components) <= 0.0 else components[0] / sum(components)
    return Correlated(
        median=total.median,
        sigma_group=total.sigma * float(np.sqrt(share)),
        sigma_member=total.sigma * float(np.sqrt(1.0 - share)),
        cap=cap,
    )


def fit_two_part(
    value: FloatArray, member: Int64Array, group_of_member: Int64Array, *, tail_from: float, floor: float
) -> TwoPart:
    """Two-part law of values of calls: lognormal body below `tail_from`, Pareto tail from there to the longest value.

    Args:
        value: one a call; values below `floor` (the resolution of the record) count as `floor`.
        member: the member of each value.
        group_of_member: the group of each member.
        tail_from: where the tail begins; with fewer than ten values above, everything is body, capped at the largest.
    """
    value = np.maximum(value, floor)
    cap = float(value.max())
    in_tail = _in_tail(value, tail_from)
    log = np.log(value[~in_tail])
    parts = np.array(nested_components(log, member[~in_tail], group_of_member))
    return _two_part(value, log, in_tail, parts, tail_from, cap)


def fit_two_part_members(value: FloatArray, group: Int64Array, *, tail_from: float, floor: float) -> TwoPart:
    """Two-part law of one value a member, as `fit_two_part`; what is not the group's effect is the value's own."""
    value = np.maximum(value, floor)
    cap = float(value.max())
    in_tail = _in_tail(value, tail_from)
    log = np.log(value[~in_tail])
    between, within = variance_components(log, group[~in_tail]) or (0.0, float(log.var()))
    return _two_part(value, log, in_tail, np.array([between, 0.0, within]), tail_from, cap)


def _in_tail(value: FloatArray, tail_from: float) -> npt.NDArray[np.bool_]:
    """Which values belong to the tail: none if they are too few to fit one."""
    in_tail = value >= tail_from
    if np.count_nonzero(in_tail) < FEWEST_IN_TAIL or value.max() <= tail_from:
        return np.zeros(len(value), np.bool_)
    return np.asarray(in_tail)


def _two_part(
    value: FloatArray,
    log: FloatArray,
    in_tail: npt.NDArray[np.bool_],
    parts: FloatArray,
    tail_from: float,
    cap: float,
) -> TwoPart:
    """The law whose body has the logarithms `log`; `parts` divide its variance among group, member and value."""
    centre, sigma = (
        _truncated_normal(log, np.log(tail_from)) if in_tail.any() else (float(log.mean()), float(log.std()))
    )
    group, own, call = sigma * np.sqrt(parts / max(parts.sum(), 1e-300))
    body = {
        "median": float(np.exp(centre)),
        "sigma": float(call),
        "sigma_group": float(group),
        "sigma_member": float(own),
    }
    if not in_tail.any():
        return TwoPart(**body, cap=cap)
    alpha = fit_pareto(value[in_tail], tail_from, cap)
    return TwoPart(**body, tail_share=float(in_tail.mean()), tail_from=tail_from, tail_alpha=alpha, cap=cap)


def fit_pareto(value: FloatArray, low: float, high: float) -> float:
    """Exponent of a Pareto truncated to [low, high], by maximum likelihood (Aban, Meerschaert & Panorska 2006)."""
    ratio, mean_log = np.log(low / high), float(np.mean(np.log(value / low)))

    def loss(alpha: float) -> float:
        return -float(np.log(alpha) - (alpha + 1.0) * mean_log - np.log(-np.expm1(alpha * ratio)))

    return float(optimize.minimize_scalar(loss, bounds=ALPHA_RANGE, method="bounded").x)


def _truncated_normal(value: FloatArray, top: float) -> tuple[float, float]:
    """Mean and deviation of the normal that, cut off above `top`, is likeliest to have given the values."""
    mean, variance = float(value.mean()), float(value.var())
    if variance <= 0.0:
        return mean, 0.0

    def loss(at: FloatArray) -> float:
        centre, log_sigma = at
        sigma = np.exp(log_sigma)
        square = (variance + (mean - centre) ** 2) / sigma**2
        return float(log_sigma + square / 2.0 + special.log_ndtr((top - centre) / sigma))

    found = optimize.minimize(
        loss, np.array([mean, 0.5 * np.log(variance)]), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}
    )
    return float(found.x[0]), float(np.exp(found.x[1]))
