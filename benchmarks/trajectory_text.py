"""Made-up text: token ids that repeat themselves as tokenised text does, so that they compress like it.

Text is a row of phrases drawn from a phrase book, the popular ones again and again. Book and odds are such that ids
take a little more bytes than those of real text. For that a byte-pair tokenizer of 60,000 words was trained on Python
packages and read others, their sources and documentation. Bytes an id as the store writes them, Parquet lists of 725
ids with zstd-3:

| ids | 10,000 | 100,000 | 870,000 | entropy of single ids | different ids |
|---|---|---|---|---|---|
| sources | 1.18 | 1.01 | 0.96 | 1.22 | 22,500 |
| documentation | 1.03 | 0.90 | 0.83 | 1.11 | 17,100 |
| both in turns | 1.13 | 0.98 | 0.88 | 1.19 | 20,900 |
| this text | 1.59 | 1.15 | 1.02 | 1.22 | 40,800 |
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from gyre.arrays import FloatArray, Int32Array, Int64Array, row_starts

VOCABULARY: Final = 150_000  # ids are below
_PHRASES: Final = 100_000
_PHRASE_TOKENS: Final = 8.0  # mean
_ID_EXPONENT: Final = 1.05  # popularity of the id of rank r is r ** -exponent
_PHRASE_EXPONENT: Final = 0.95  # likewise of phrases
_SEED: Final = 0


class PhraseBook:
    """Phrases of one token or more, and how popular each is."""

    def __init__(self) -> None:
        rng = np.random.default_rng(_SEED)
        self._start: Int64Array = row_starts(rng.geometric(1 / _PHRASE_TOKENS, _PHRASES))
        drawn = np.searchsorted(_odds(VOCABULARY, _ID_EXPONENT), rng.random(int(self._start[-1])), side="right")
        self._ids: Int32Array = drawn.astype(np.int32)
        self._odds = _odds(_PHRASES, _PHRASE_EXPONENT)

    def text(self, uniform: FloatArray) -> Int32Array:
        """Return as many tokens as there are numbers from [0, 1); they draw the phrases, of which the last is cut."""
        phrase = np.searchsorted(self._odds, uniform, side="right")
        start = self._start[phrase]
        begins = row_starts(self._start[phrase + 1] - start)
        phrases = int(np.searchsorted(begins, len(uniform)))  # that are needed
        shift = np.repeat(start[:phrases] - begins[:phrases], np.diff(begins[: phrases + 1]))[: len(uniform)]
        return self._ids[np.arange(len(uniform)) + shift]


@cache
def phrase_book() -> PhraseBook:
    """Return the book, the same on each machine."""
    return PhraseBook()


def _odds(count: int, exponent: float) -> FloatArray:
    """Cumulative probabilities of ranks 1 to `count` by Zipf's law, (count,), the last of them 1."""
    total = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -exponent)
    return total / total[-1]
