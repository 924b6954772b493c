"""SplitMix64 against its reference implementation's output."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gyre.splitmix import mixed

# First outputs of splitmix64.c (Vigna, 2015) from state 0; each output mixes a state that grew by the golden gamma.
REFERENCE = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)
GAMMA = 0x9E3779B97F4A7C15


def test_outputs_are_those_of_the_reference_implementation() -> None:
    assert tuple(mixed(step * GAMMA % 2**64) for step in range(3)) == REFERENCE


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_an_array_is_mixed_as_its_integers_are(words: list[int]) -> None:
    assert mixed(np.array(words, np.uint64)).tolist() == [mixed(word) for word in words]
