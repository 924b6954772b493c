"""Quantiles of the profile's distributions, for arrays of uniforms."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from ...arrays import FloatArray
from .profile import Lognormal, TwoPart

# Uniforms come from [0, 1): keep the normal quantile finite at 0.
_TINY = 2.0**-60


def lognormal_quantile(law: Lognormal, u: FloatArray, effect: FloatArray | float = 0.0) -> FloatArray:
    """Values of `law` at the probabilities `u`, its logarithm shifted by `effect`; at most the cap."""
    value = law.median * np.exp(effect + law.sigma * ndtri(np.maximum(u, _TINY)))
    return np.asarray(np.minimum(value, np.inf if law.cap is None else law.cap), np.float64)


def two_part_quantile(law: TwoPart, u: FloatArray, effect: FloatArray | float = 0.0) -> FloatArray:
    """Values of `law` at the probabilities `u`, for executions whose effect of group and member is `effect`."""
    if law.tail_share == 0.0 or law.tail_from is None or law.cap is None:
        return lognormal_quantile(law, u, effect)
    # The mean of exp(effect) over executions is exp(variance / 2): divided out, the mean share stays `tail_share`.
    share = law.tail_share * np.exp(effect - (law.sigma_group**2 + law.sigma_member**2) / 2.0)
    share = np.minimum(share, 1.0 - 1e-9)
    in_tail = np.clip((u - (1.0 - share)) / share, 0.0, 1.0)
    tail = law.tail_from * (1.0 - in_tail * (1.0 - (law.tail_from / law.cap) ** law.tail_alpha)) ** (
        -1.0 / law.tail_alpha
    )
    return np.asarray(
        np.where(u >= 1.0 - share, tail, _body(law, law.tail_from, u / (1.0 - share), effect)), np.float64
    )


def _body(law: TwoPart, top: float, u: FloatArray, effect: FloatArray | float) -> FloatArray:
    """The lognormal body, conditioned to lie below `top`."""
    centre = np.log(law.median) + effect
    if law.sigma == 0.0:
        return np.asarray(np.minimum(np.exp(centre + 0.0 * u), top), np.float64)
    below = np.maximum(ndtr((np.log(top) - centre) / law.sigma), _TINY)
    return np.asarray(np.exp(centre + law.sigma * ndtri(np.clip(u * below, _TINY, 1.0 - 1e-16))), np.float64)
