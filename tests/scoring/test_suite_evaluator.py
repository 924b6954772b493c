"""Tests as evaluators: a real pytest, reports of other tools, and reports that cannot be used."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from evaluating import evaluated, left, settings_of, subject_of

from gyre.errors import InputError
from gyre.scoring.evaluation import Evaluation
from gyre.scoring.junit import ReportError, read_junit

SUITE = """
    import pytest
    def test_core(): pass
    def test_edge(): assert 1 == 2, "one is not two"
    @pytest.mark.parametrize("n", [0, 1])
    def test_many(n): assert n == 0
    @pytest.mark.skip(reason="not here")
    def test_skipped(): assert False
    @pytest.mark.xfail
    def test_expected_to_fail(): assert False
"""
REPORT = """<?xml version="1.0"?>
<testsuites><testsuite name="s" tests="4">
  <testcase classname="pkg.Core" name="adds" time="0.1"/>
  <testcase classname="pkg.Core" name="subtracts"><failure message="expected 1&#10;got 2">trace</failure></testcase>
  <testcase classname="pkg.Edge" name="divides"><error type="panic"/></testcase>
  <testcase classname="pkg.Edge" name="later"><skipped/></testcase>
</testsuite></testsuites>"""


def project(folder: Path, suite: str = SUITE, **more: str) -> Path:
    return left(
        folder, test_it__py=textwrap.dedent(suite), **{name: textwrap.dedent(text) for name, text in more.items()}
    )


def judged(folder: Path, **settings: Any) -> Evaluation:
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return evaluated(settings_of("pytest", env=quick, **settings), subject_of(folder))


def test_the_share_that_passed_is_the_score(tmp_path: Path) -> None:
    """2 of 4: the skipped one and the one that is expected to fail count neither way."""
    evaluation = judged(project(tmp_path / "a"))
    assert (evaluation.valid, evaluation.score) == (True, 0.5)
    facts = evaluation.details["tests"]
    assert {name: facts[name] for name in ("passed", "skipped", "failed", "error")} == {
        "passed": 2,
        "skipped": 2,
        "failed": 2,
        "error": 0,
    }
    assert facts["not_passed"][0].startswith("test_it::test_edge: AssertionError: one is not two")


@pytest.mark.parametrize(
    ("settings", "score"),
    [
        ({"weights": {"*core*": 5}}, (5 + 1) / 8),
        ({"weights": {"*::test_many?0?": 3, "*many*": 0}}, (1 + 3) / 5),
        ({"weights": {"*edge": 2}, "default_weight": 0}, 0.0),
        ({"skipped": "pass"}, 4 / 6),
        ({"skipped": "fail"}, 2 / 6),
        ({"expected": 10}, 2 / 8),
        ({"expected": 3}, 2 / 4),
        ({"tests": ["test_it.py::test_core"]}, 1.0),
        ({"arguments": ["-k", "many"]}, 1 / 2),
    ],
)
def test_weights_skips_and_missing_tests_count_as_stated(
    settings: dict[str, Any], score: float, tmp_path: Path
) -> None:
    assert judged(project(tmp_path / "a"), **settings).score == pytest.approx(score)


def test_each_pattern_of_weights_is_a_check(tmp_path: Path) -> None:
    evaluation = judged(project(tmp_path / "a"), weights={"*core*": 5})
    assert [(check.name, check.passed, check.weight) for check in evaluation.checks] == [
        ("*core*", 1.0, 5.0),
        ("tests", pytest.approx(1 / 3), 3.0),
    ]


def test_a_file_that_cannot_be_collected_fails_and_others_run(tmp_path: Path) -> None:
    evaluation = judged(project(tmp_path / "a", test_broken__py="import no_such_module"))
    assert evaluation.score == pytest.approx(2 / 5)
    assert evaluation.details["tests"]["error"] == 1


def test_a_test_that_fails_twice_counts_once(tmp_path: Path) -> None:
    """pytest writes two entries for a test that fails both when it is called and when it is taken down."""
    suite = """
        import pytest
        @pytest.fixture
        def broken(): yield; raise RuntimeError("teardown")
        def test_a(broken): assert False
        def test_b(): pass
    """
    evaluation = judged(project(tmp_path / "a", suite))
    assert evaluation.score == 0.5
    assert evaluation.details["tests"]["error"] == 1


def test_all_passed_and_none_passed_are_valid(tmp_path: Path) -> None:
    """A valid zero is kept."""
    assert judged(project(tmp_path / "a", "def test_a(): pass")).score == 1.0
    evaluation = judged(project(tmp_path / "b", "def test_a(): assert False"))
    assert (evaluation.valid, evaluation.score) == (True, 0.0)


@pytest.mark.parametrize(
    ("suite", "settings", "why"),
    [
        ("x = 1", {}, "pytest ended with exit code 5"),
        ("import os; os._exit(0)", {}, "there is no report; exit code 0"),
        ("import os; os.abort()", {}, "killed by SIGABRT"),
        ("def test_a(): raise KeyboardInterrupt", {}, "pytest ended with exit code 2"),
        ("import time; time.sleep(1000)", {"limits": {"wall_s": 3, "grace_s": 0}}, "not done within its time limit"),
        ("def test_a(): pass", {"arguments": ["--no-such-option"]}, "pytest ended with exit code 4"),
        ("import pytest; pytest.skip(allow_module_level=True)", {}, "pytest ended with exit code 5"),
    ],
)
def test_a_run_without_a_whole_report_scores_zero_unless_stated_otherwise(
    suite: str, settings: dict[str, Any], why: str, tmp_path: Path
) -> None:
    """What is tested runs in pytest's process, and could leave that way whenever it would fail."""
    folder = project(tmp_path / "a", suite)
    evaluation = judged(folder, **settings)
    assert (evaluation.valid, evaluation.score) == (True, 0.0)
    assert why in evaluation.reason
    evaluation = judged(folder, **settings, score_at_crash="invalid", score_at_limit="invalid")
    assert (evaluation.valid, evaluation.score) == (False, None)
    assert why in evaluation.reason


@pytest.mark.parametrize("suite", ["import os; os.kill(os.getppid(), 9)", "import sys; print('x' * 10**7)"])
def test_killing_the_parent_and_flooding_are_no_way_out_of_a_zero(suite: str, tmp_path: Path) -> None:
    folder = project(tmp_path / "a", suite)
    evaluation = judged(folder, arguments=["-s"], limits={"flood_bytes": 10**6})
    assert (evaluation.valid, evaluation.score) == (True, 0.0)


def test_a_machine_without_pytest_is_told_of_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no-such-python: no such program"):
        judged(project(tmp_path / "a"), python="no-such-python")
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(InputError, match="has no pytest"):
        judged(project(tmp_path / "a"), python=str(python))


def test_tests_that_the_policy_changed_are_replaced(tmp_path: Path) -> None:
    task = project(tmp_path / "task", "def test_a(): assert False")
    assert judged(project(tmp_path / "a", "def test_a(): pass"), overlay=str(task)).score == 0.0


def test_another_tool_may_write_the_report(tmp_path: Path) -> None:
    folder = left(tmp_path / "a", made__xml=REPORT)
    evaluation = judged(folder, command=["sh", "-c", "cp made.xml {report}; exit 1"])
    assert evaluation.score == pytest.approx(1 / 3)
    assert evaluation.details["tests"]["not_passed"] == ["pkg.Core::subtracts: expected 1 got 2", "pkg.Edge::divides: "]
    assert judged(folder, command=["true"]).score == 0.0
    assert judged(folder, command=["true"]).reason.startswith("there is no report; exit code 0")


def test_a_report_among_the_artefacts_can_be_read(tmp_path: Path) -> None:
    folder = left(tmp_path / "a", made__xml=REPORT)
    assert judged(folder, file="made.xml", weights={"pkg.Core*": 2}).score == pytest.approx(2 / 5)
    assert judged(folder, file="../b.xml").reason == "the report lies outside the artefacts"
    assert judged(folder, file="none.xml").reason.startswith("there is no report")


BOMB = """<!DOCTYPE t [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;">]>
<testsuite><testcase name="&c;"/></testsuite>"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, "document type; entities are not expanded"),
        ('<!DOCTYPE t SYSTEM "file:///etc/passwd"><testsuite/>', "document type"),
        ("<testsuite><testcase", "not XML that can be read"),
        ("", "not XML that can be read"),
        ("\xff\xfe", "not XML that can be read"),
        ("<html/>", "no JUnit report"),
    ],
)
def test_a_report_that_cannot_be_trusted_is_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ReportError, match=why):
        read_junit(tmp_path / "r.xml")


def test_a_report_of_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.xml").touch()
    with (tmp_path / "large.xml").open("r+b") as file:
        file.truncate(10**10)
    with pytest.raises(ReportError, match="larger than"):
        read_junit(tmp_path / "large.xml")
    (tmp_path / "link.xml").symlink_to("/dev/zero")
    with pytest.raises(ReportError, match="there is no report"):
        read_junit(tmp_path / "link.xml")
