"""Calls that break a rule are refused, with the rule, the field, the first bad place and its value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logged_calls import ids, plain_call, rich_call

from gyre.trajectory.call import Finish, Media
from gyre.trajectory.check import Reason, refusal


def floats(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"versions": ids(7, -1)},
        {"logprobs": floats(0.0, -0.0)},
        {"logprobs": floats(-1e-45, -9998.0)},
        {"output_ids": ids(), "logprobs": None},
        {"output_ids": ids(), "logprobs": floats(), "finish": Finish.ERROR},
        {"finish": Finish.LENGTH},
        {"by_policy": False, "logprobs": None},
        {"by_policy": False, "logprobs": floats(math.nan)},
        {"media": (Media(0, 1, "a"), Media(1, 2, "b"))},
        {"channels": {"experts": np.zeros((2, 48, 8), np.uint8)}},
    ],
)
def test_sound_calls_pass(changes: dict[str, Any]) -> None:
    assert refusal(plain_call(**changes)) is None


@pytest.mark.parametrize(
    ("reason", "changes", "said"),
    [
        (Reason.MISSING_LOGPROBS, {"logprobs": None}, "logprobs is missing for 2 output tokens"),
        (Reason.LOGPROB_LENGTH, {"logprobs": floats(-1)}, "1 values for 2 output tokens"),
        (Reason.LOGPROB_LENGTH, {"logprobs": floats(-1, -1, -1)}, "3 values for 2 output tokens"),
        (Reason.LOGPROB_LENGTH, {"output_ids": ids()}, "2 values for 0 output tokens"),
        (Reason.NAN_LOGPROB, {"logprobs": floats(-1, math.nan)}, "logprobs[1] is nan"),
        (Reason.INFINITE_LOGPROB, {"logprobs": floats(-math.inf, -1)}, "logprobs[0] is -inf"),
        (Reason.INFINITE_LOGPROB, {"logprobs": floats(math.inf, -1)}, "logprobs[0] is inf"),
        (Reason.INFINITE_LOGPROB, {"logprobs": floats(-1, -9999)}, "logprobs[1] is -9999"),
        (Reason.POSITIVE_LOGPROB, {"logprobs": floats(-1, 0.5)}, "logprobs[1] is 0.5"),
        (Reason.POSITIVE_LOGPROB, {"logprobs": floats(1e-7, -1)}, "logprobs[0] is 1e-07"),
        (Reason.EMPTY_INPUT, {"input_ids": ids()}, "input_ids is empty"),
        (Reason.NEGATIVE_TOKEN, {"input_ids": ids(1, -5, -6)}, "input_ids[1] is -5"),
        (Reason.NEGATIVE_TOKEN, {"output_ids": ids(1, -1)}, "output_ids[1] is -1"),
        (Reason.NOT_DELIVERED, {"delivered": False, "logprobs": None}, "client was gone"),
        (Reason.WRONG_TYPE, {"thread": 3}, "thread is 3, expected a text"),
        (Reason.WRONG_TYPE, {"role": "boss"}, "role is 'boss', expected None or one of main"),
        (Reason.WRONG_TYPE, {"media": (Media(0, 2**70, "a"),)}, "media[0].length is an integer of 71 bits"),
        (Reason.NEGATIVE_SEQUENCE, {"sequence": -1}, "sequence is -1"),
        (Reason.VERSION_LENGTH, {"versions": ids(1)}, "1 values for 2 output tokens"),
        (Reason.NEGATIVE_VERSION, {"versions": ids(1, -2)}, "versions[1] is -2"),
        (Reason.CHANNEL_LENGTH, {"channels": {"experts": np.zeros((1, 8))}}, "channels['experts'] has 1 rows for 2"),
        (Reason.CHANNEL_LENGTH, {"channels": {"experts": np.array(1.0)}}, "has no rows for 2"),
        (Reason.WRONG_DTYPE, {"channels": {"experts": [1, 2]}}, "channels['experts'] is no array"),
        (Reason.WRONG_DTYPE, {"channels": {"x": np.array([{}, {}])}}, "channels['x'] is no array"),
        (Reason.WRONG_DTYPE, {"input_ids": [1, 2]}, "input_ids is a list, expected a contiguous array of int32"),
        (Reason.WRONG_DTYPE, {"input_ids": np.array([1, 2])}, "input_ids is an array of int64"),
        (Reason.WRONG_DTYPE, {"output_ids": np.arange(4, dtype=np.int32)[::2]}, "output_ids is not contiguous"),
        (Reason.WRONG_DTYPE, {"output_ids": ids(1, 2).reshape(1, 2)}, "output_ids has 2 dimensions"),
        (Reason.WRONG_DTYPE, {"logprobs": np.array([-1.0, -2.0])}, "logprobs is an array of float64"),
        (Reason.WRONG_DTYPE, {"versions": np.array([1.0, 2.0])}, "versions is an array of float64"),
        (Reason.BAD_MEDIA, {"media": (Media(2, 2, "a"),)}, "media[0] is at [2, 4)"),
        (Reason.BAD_MEDIA, {"media": (Media(-1, 1, "a"),)}, "media[0] is at [-1, 0)"),
        (Reason.BAD_MEDIA, {"media": (Media(0, 0, "a"),)}, "media[0] is at [0, 0)"),
        (Reason.BAD_MEDIA, {"media": (Media(0, 2, "a"), Media(1, 1, "b"))}, "media[1] is at [1, 2)"),
        (Reason.BAD_MEDIA, {"media": (Media(0, 1, ""),)}, "media[0].digest is empty"),
    ],
)
def test_a_broken_rule_is_named_with_its_place(reason: Reason, changes: dict[str, Any], said: str) -> None:
    found = refusal(plain_call(7, **changes))
    assert found is not None
    assert found.reason == reason
    assert said in found.text
    assert found.text.startswith("call c7 of execution e: ")
    assert "\n" not in found.text
    assert (found.call_id, found.sequence) == ("c7", changes.get("sequence", 7))


def test_what_another_model_sampled_is_still_checked_as_context() -> None:
    found = refusal(plain_call(by_policy=False, output_ids=ids(3, -4)))
    assert found is not None
    assert found.reason == Reason.NEGATIVE_TOKEN


def test_an_undelivered_reply_is_out_whatever_else_it_holds() -> None:
    found = refusal(rich_call())
    assert found is not None
    assert found.reason == Reason.NOT_DELIVERED


@given(st.lists(st.floats(width=32), min_size=1, max_size=70))
def test_log_probabilities_against_a_loop(values: list[float]) -> None:
    bad = next((at for at, value in enumerate(values) if not -9999 < value <= 0), None)
    found = refusal(plain_call(output_ids=np.zeros(len(values), np.int32), logprobs=floats(*values)))
    if bad is None:
        assert found is None
    else:
        assert found is not None
        assert f"logprobs[{bad}] is" in found.text


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=70))
def test_token_ids_against_a_loop(values: list[int]) -> None:
    bad = next((at for at, value in enumerate(values) if value < 0), None)
    found = refusal(plain_call(input_ids=ids(*values)))
    assert (found is None) == (bad is None)
    if found is not None:
        assert f"input_ids[{bad}] is {values[bad or 0]}," in found.text


def test_a_call_is_not_changed_and_may_be_read_only() -> None:
    call = plain_call()
    for array in (call.input_ids, call.output_ids, call.logprobs):
        assert array is not None
        array.flags.writeable = False
    assert refusal(call) is None


@pytest.mark.parametrize(
    ("changes", "call_id", "sequence"), [({"sequence": 2**70}, "c0", -1), ({"call_id": 3}, "3", 0)]
)
def test_a_call_without_a_usable_name_is_refused_with_one(changes: dict[str, Any], call_id: str, sequence: int) -> None:
    found = refusal(plain_call(**changes))
    assert found is not None
    assert (found.reason, found.call_id, found.sequence) == (Reason.WRONG_TYPE, call_id, sequence)
