"""Hashes of keys to random bits, for draws that depend on their keys alone."""

from __future__ import annotations

import hashlib
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

Word = TypeVar("Word", int, npt.NDArray[np.uint64])

WORD_MASK: Final = (1 << 64) - 1


def mixed(word: Word) -> Word:
    """SplitMix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).

    `word` is an integer in [0, 2**64), or an array of them.
    """
    state: Any = word
    state = (state + 0x9E3779B97F4A7C15) & WORD_MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD_MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & WORD_MASK
    return cast(Word, state ^ (state >> 31))


def hashed(text: str) -> int:
    """Word of a text, the same on every machine and in every run: 8 bytes of BLAKE2b."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
