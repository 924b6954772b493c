"""How checks become a score: by hand, and what holds for all checks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rules_files import artefacts, evaluated, rule_set

from gyre.scoring.evaluation import CheckStage
from gyre.scoring.rules.combining import Combine, Term, combined

SHARES = st.floats(0, 1)
TERMS = st.lists(
    st.builds(
        Term,
        name=st.uuids().map(str),
        passed=SHARES,
        weight=st.one_of(st.just(0.0), st.floats(1e-3, 1e3)),
        stage=st.sampled_from(CheckStage),
        limit=st.one_of(st.just(1.0), st.just(0.0), SHARES),
        pass_at=SHARES,
    ),
    min_size=1,
    max_size=8,
)
HOW = st.sampled_from(Combine)
CAPS = st.dictionaries(st.sampled_from(CheckStage), SHARES)


def test_mean_of_three_by_hand() -> None:
    terms = [Term("a", 1.0, 3.0), Term("b", 0.5, 1.0), Term("c", 0.0, 1.0)]
    assert combined(terms).score == pytest.approx((3 * 1 + 1 * 0.5 + 1 * 0) / 5)


def test_cap_of_a_stage_by_hand() -> None:
    terms = [Term("a", 0.5, 1.0), Term("b", 1.0, 1.0, CheckStage.PROCESS)]
    assert combined(terms).score == pytest.approx(0.75)
    assert combined(terms, stage_caps={CheckStage.PROCESS: 0.2}).score == pytest.approx(0.25 + 0.2)


def test_cap_while_a_rule_fails_by_hand() -> None:
    terms = [Term("a", 1.0, 1.0), Term("b", 0.9, 1.0, limit=0.4, pass_at=0.95), Term("c", 0.0, 0.0, limit=0.7)]
    found = combined(terms)
    assert found.score == 0.4
    assert found.uncapped == pytest.approx(0.95)
    assert found.limited_by == ("b", "c")
    assert combined([replace(terms[1], pass_at=0.9)]).score == pytest.approx(0.9)


def test_gate_then_floor_by_hand() -> None:
    terms = [Term("a", 1.0, 1.0), Term("gate", 0.99, 0.0, limit=0.0)]
    assert combined(terms).score == 0.0
    assert combined(terms, floor=0.1).score == 0.1
    assert combined([terms[0]], ceiling=0.8).score == 0.8


def test_all_must_pass_by_hand() -> None:
    terms = [Term("a", 1.0, 1.0), Term("b", 0.5, 1.0, pass_at=0.5), Term("watched", 0.0, 0.0)]
    assert combined(terms, Combine.ALL).score == 1.0
    assert combined([replace(terms[1], pass_at=0.6), *terms[:1]], Combine.ALL).score == 0.0


@given(TERMS, HOW, CAPS, SHARES, SHARES)
def test_a_score_is_within_its_bounds(
    terms: list[Term], how: Combine, caps: dict[CheckStage, float], one: float, other: float
) -> None:
    floor, ceiling = sorted((one, other))
    assert floor <= combined(terms, how, caps, floor, ceiling).score <= ceiling


@given(TERMS, HOW, CAPS, st.data())
def test_a_check_that_passes_further_never_lowers_the_score(
    terms: list[Term], how: Combine, caps: dict[CheckStage, float], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(terms) - 1))
    better = list(terms)
    better[index] = replace(terms[index], passed=data.draw(st.floats(terms[index].passed, 1)))
    assert combined(better, how, caps).score >= combined(terms, how, caps).score - 1e-12


@given(TERMS, HOW, CAPS, st.floats(1e-3, 1e3))
def test_only_the_ratio_of_weights_counts(
    terms: list[Term], how: Combine, caps: dict[CheckStage, float], factor: float
) -> None:
    scaled = [replace(term, weight=term.weight * factor) for term in terms]
    one, other = combined(terms, how, caps), combined(scaled, how, caps)
    assert math.isclose(one.score, other.score, rel_tol=1e-9, abs_tol=1e-9)


@given(TERMS, HOW, CAPS)
def test_the_order_of_checks_does_not_count(terms: list[Term], how: Combine, caps: dict[CheckStage, float]) -> None:
    assert combined(terms, how, caps).score == combined(terms[::-1], how, caps).score


@given(TERMS)
def test_all_checks_passed_give_one_and_none_zero(terms: list[Term]) -> None:
    assert combined([replace(term, passed=1.0) for term in terms]).score == pytest.approx(1.0)
    assume(any(term.weight > 0 for term in terms))
    assert combined([replace(term, passed=0.0) for term in terms]).score == 0.0


def test_a_file_is_combined_as_its_checks_are_by_hand(tmp_path: Path) -> None:
    rules = rule_set(
        tmp_path,
        {"kind": "file", "path": "there.txt", "weight": 3},
        {"kind": "file", "path": "missing.txt", "weight": 1},
        {"kind": "limit", "of": "steps", "at_most": 10, "zero_above": 20, "weight": 4},
        {"kind": "file", "path": "big.txt", "weight": 0, "cap": 0.45},
        stages={"process": {"cap": 0.2}},
    )
    evaluation = evaluated(rules, artefacts(tmp_path, there__txt="x"), steps=15)
    # (3 + 0) / 8 of the outcome, 4 * 0.5 / 8 of the process, of which 0.2 counts: 0.575, capped at 0.45
    assert evaluation.score == 0.45
    assert evaluation.details["uncapped"] == pytest.approx(3 / 8 + 0.2)
    assert evaluation.details["limited_by"] == ["rule 3"]
    assert [(check.name, check.passed, check.weight) for check in evaluation.checks] == [
        ("rule 0", 1.0, 3.0),
        ("rule 1", 0.0, 1.0),
        ("rule 2", 0.5, 4.0),
        ("rule 3", 0.0, 0.0),
    ]


def test_process_checks_come_in_by_version(tmp_path: Path) -> None:
    rules = rule_set(
        tmp_path,
        {"kind": "file", "path": "there.txt"},
        {"kind": "limit", "of": "steps", "at_most": 10},
        {"kind": "file", "path": "late.txt", "from_version": 7, "weight": 0, "cap": 0.5, "ramp_versions": 1},
        stages={"process": {"from_version": 3, "ramp_versions": 3}},
    )
    folder = artefacts(tmp_path, there__txt="x")
    found = {version: evaluated(rules, folder, steps=99, version=version) for version in range(9)}
    # the limit fails with the weights 0, 1/4, 2/4, 3/4, 1 against 1; at 7 the cap is half on: 1 - 0.5 * 0.5
    expected = {0: 1, 2: 1, 3: 1 / 1.25, 4: 1 / 1.5, 5: 1 / 1.75, 6: 1 / 2, 7: 0.5, 8: 0.5}
    assert {version: found[version].score for version in expected} == pytest.approx(expected)
    assert [len(found[version].checks) for version in (2, 3, 7)] == [1, 2, 3]
    assert rules.last_version == 8
    assert rules.term(rules.rules[2], 0.0, 7).limit == 0.75
    assert rules.term(rules.rules[2], 0.0, 8).limit == 0.5
