"""Random draws keyed by what they are for, so that every policy meets the same chances (common random numbers)."""

from __future__ import annotations

import math

import numpy as np

from .splitmix import WORD_MASK, mixed


def uniform(seed: int, *keys: int) -> float:
    """Return a uniform draw in [0, 1) that depends on the seed and the keys alone."""
    state = mixed(seed)
    for key in keys:
        state = mixed(state ^ mixed(key & WORD_MASK))
    return (state >> 11) * 2.0**-53


def exponential(mean: float, seed: int, *keys: int) -> float:
    """Return an exponential draw of the given mean, keyed like `uniform`."""
    return -mean * math.log1p(-uniform(seed, *keys))


def generator(seed: int, *keys: int) -> np.random.Generator:
    """Return a NumPy generator keyed by the seed and the keys."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *keys])))
