"""Random draws keyed by what they are for, so that every policy meets the same chances (common random numbers)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

_MASK: Final = (1 << 64) - 1


def _mix(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, *keys: int) -> float:
    """Return a uniform draw in [0, 1) that depends on the seed and the keys alone."""
    state = _mix(seed)
    for key in keys:
        state = _mix(state ^ _mix(key & _MASK))
    return (state >> 11) * 2.0**-53


def exponential(mean: float, seed: int, *keys: int) -> float:
    """Return an exponential draw of the given mean, keyed like `uniform`."""
    return -mean * math.log1p(-uniform(seed, *keys))


def generator(seed: int, *keys: int) -> np.random.Generator:
    """Return a NumPy generator keyed by the seed and the keys."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *keys])))
