"""Which earlier call an input is written as a continuation of."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from logged_calls import plain_call

from gyre.arrays import common_prefix
from gyre.trajectory.call_log.contexts import Contexts

SYSTEM = np.arange(50, dtype=np.int32)


def grown(*more: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.concatenate((SYSTEM, np.array(more, np.int32)))


@given(st.integers(0, 9000), st.integers(0, 9000), st.integers(0, 9000), st.booleans())
def test_common_prefix_against_where_the_arrays_were_made_to_part(left: int, right: int, at: int, again: bool) -> None:
    one, other = np.zeros(left, np.int32), np.zeros(right, np.int32)
    other[at:] = 1
    if again and at + 1 < right:
        other[at + 1] = 0  # equal once more, after they parted
    assert common_prefix(one, other) == min(left, right, at)


def test_the_longest_shared_beginning_wins_and_the_own_thread_where_it_goes_on_whole() -> None:
    contexts = Contexts(1 << 20)
    for offset, (thread, tokens) in enumerate((("a", grown(1)), ("b", grown(1, 2, 3)), ("c", grown(1, 2, 3, 4)))):
        contexts.add(plain_call(input_ids=tokens[:-1], output_ids=tokens[-1:], thread=thread), offset, 0, 1, None)
    for tokens, thread, offset, shared in (
        (grown(1, 2, 3, 4, 5), "", 2, 54),
        (grown(1, 2, 3, 9), "b", 1, 53),
        (grown(1, 2, 3, 4, 5), "b", 1, 53),
        (grown(7), "a", 0, 50),
    ):
        match = contexts.match(plain_call(input_ids=tokens, thread=thread))
        assert match is not None
        assert (match.context.offset, match.shared) == (offset, shared)
    assert contexts.match(plain_call(input_ids=SYSTEM[:20])) is None
    assert contexts.match(plain_call(execution="other", input_ids=SYSTEM)) is None


def test_the_longest_unused_context_is_let_go_first() -> None:
    contexts = Contexts(3 * SYSTEM.nbytes)
    calls = [plain_call(execution=name, input_ids=SYSTEM, output_ids=SYSTEM[:0]) for name in "abcd"]
    for offset, call in enumerate(calls[:3]):
        contexts.add(call, offset, 0, 1, None)
    assert contexts.match(calls[0]) is not None
    contexts.add(calls[3], 3, 0, 1, None)
    assert [contexts.match(call) is not None for call in calls] == [True, False, True, True]
    contexts.forget("a")
    contexts.forget("b")
    assert contexts.nbytes == 2 * SYSTEM.nbytes
