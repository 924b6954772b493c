"""What evaluators may say: the score that counts, and what makes an evaluation not valid instead of zero."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.scoring.evaluation import Check, CheckStage, Evaluation
from gyre.scoring.result import evaluation_of, evaluation_of_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("said", "score"), [(0, 0.0), (0.25, 0.25), (-3, -3.0), (np.float32(0.5), 0.5), (np.int64(2), 2.0)]
)
def test_a_number_is_a_score_and_zero_is_one(said: Any, score: float) -> None:
    assert evaluation_of(said) == Evaluation(valid=True, score=score)
    assert evaluation_of({"score": said}) == Evaluation(valid=True, score=score)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (float("nan"), "score is nan, expected a finite number"),
        ({"score": float("inf")}, "score is inf, expected a finite number"),
        ({"score": 10**400}, "expected a finite number"),
        (True, "score is True, expected a number"),
        ({"score": "0.5"}, "score is '0.5', expected a number"),
        ({"score": None}, "score is None, expected a number"),
        (np.array([1.0, 2.0]), "expected a number"),
        (None, "score is None, expected a number"),
        ({}, "it has no score"),
        ({"score": 1, "valid": "yes"}, "valid is 'yes', expected true or false"),
        ({"score": 1, "vald": False}, "unknown key 'vald'"),
        ({"score": 1, "checks": {"a": 2}}, "check a: passed is 2, expected a share from 0 to 1"),
        ({"score": 1, "checks": [{"name": "a"}]}, "expected an object with name and passed"),
        ({"score": 1, "checks": [{"name": "a", "passed": 1, "stage": "later"}]}, "stage is 'later'"),
        ({"score": 1, "checks": {str(n): 1 for n in range(300)}}, "300 checks, expected at most 256"),
        (Evaluation(valid=True, score=math.nan), "score is nan"),
        (Evaluation(valid=True, score=None), "score is None"),
    ],
)
def test_what_is_no_score_is_not_valid_and_says_why(said: Any, why: str) -> None:
    evaluation = evaluation_of(said)
    assert (evaluation.valid, evaluation.score) == (False, None)
    assert why in evaluation.reason


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b'{"score": 1', "not JSON"),
        (b'{"score": 1} trailing', "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b'{"score": 1, "reason": "\xff"}', "not JSON"),
        (b"1.0", "no JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"score": NaN}', "score is nan"),
    ],
)
def test_output_that_is_no_json_object_is_not_valid(text: bytes, why: str) -> None:
    evaluation = evaluation_of_json(text)
    assert not evaluation.valid
    assert why in evaluation.reason


@given(JSON)
def test_whatever_is_said_gives_an_evaluation_that_can_be_kept(said: Any) -> None:
    for evaluation in (evaluation_of(said), evaluation_of({"score": 1.0, "details": {"said": said}})):
        assert evaluation.valid == (evaluation.score is not None)
        assert evaluation.score is None or math.isfinite(evaluation.score)
        assert evaluation.valid or evaluation.reason
        json.dumps(dict(evaluation.details), allow_nan=False).encode()
        "".join((evaluation.reason, *evaluation.details)).encode()


@given(st.binary())
def test_whatever_is_printed_gives_an_evaluation(text: bytes) -> None:
    assert evaluation_of_json(text).valid in (True, False)


def test_all_fields_are_taken() -> None:
    checks = [{"name": "a", "passed": True, "weight": 2, "stage": "process", "detail": "d"}]
    said = {"score": 0.5, "valid": True, "reference": "commit:1", "checks": checks, "details": {"x": [1]}}
    assert evaluation_of(said) == Evaluation(
        valid=True,
        score=0.5,
        reference="commit:1",
        checks=(Check("a", 1.0, 2.0, CheckStage.PROCESS, "d"),),
        details={"x": [1]},
    )


def test_an_evaluator_may_say_itself_that_it_is_not_valid() -> None:
    evaluation = evaluation_of({"valid": False, "score": 0.7, "reason": "no network\nhere"})
    assert (evaluation.valid, evaluation.score, evaluation.reason) == (False, None, "no network here")


def test_long_texts_are_cut_and_the_rest_stays() -> None:
    said = {"score": 1, "reason": "r" * 10_000, "details": {"log": "x" * 10**6, "n": 3}}
    evaluation = evaluation_of(said)
    assert evaluation.valid
    assert len(evaluation.reason) == 300
    assert evaluation.details["n"] == 3
    assert evaluation.details["log"]["bytes"] == 10**6 + 2
    assert len(json.dumps(dict(evaluation.details))) < 40_000
