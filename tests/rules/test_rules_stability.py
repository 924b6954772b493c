"""Rules whose outcome depends on chance, on order or on company are found; others are not."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from rules_files import artefacts, evaluated, rule_set

from gyre.scoring.evaluation import Subject
from gyre.scoring.rules import RuleEvaluator, RuleSet
from gyre.scoring.rules.changes import MOST_NAMED
from gyre.scoring.rules.stability import LEAST_TIMES, Mode, Stability, check_stability, modes
from gyre.scoring.rules.stability_summary import summarized

ODD = "echo x >> {rules}/count; test $(( $(wc -l < {rules}/count) % 2 )) = 1"
ALONE = "mkdir {rules}/lock && sleep 0.3 && rmdir {rules}/lock"


def shell(script: str, **more: Any) -> dict[str, Any]:
    return {"kind": "command", "command": ["sh", "-c", script], **more}


def checked(rules: RuleSet, *folders: Path, times: int = LEAST_TIMES, **subject: Any) -> Stability:
    subjects = [Subject("check", folder=folder, **subject) for folder in folders]
    return asyncio.run(check_stability(rules, subjects, times))


def test_every_check_runs_in_order_in_reverse_and_at_once() -> None:
    assert modes(3) == [Mode.FILE_ORDER, Mode.REVERSED, Mode.AT_ONCE]
    assert set(modes(7)[3:]) == {Mode.SHUFFLED, Mode.SHUFFLED_AT_ONCE}


def test_a_rule_that_says_otherwise_each_time_is_found(tmp_path: Path) -> None:
    rules = rule_set(tmp_path, shell(ODD, name="odd"), shell("true", name="always"), shell("false", name="never"))
    found = checked(rules, artefacts(tmp_path), times=4)
    (flip,) = found.flips
    assert flip.rule.name == "odd"
    assert {passed: len(seen) for passed, seen in flip.outcomes.items()} == {1.0: 2, 0.0: 2}
    assert "exit code 1" in flip.outcomes[0.0][0].detail
    assert [summarized(on_folders).pass_share for on_folders in found.by_rule().values()] == [0.5, 1.0, 0.0]


def test_a_rule_that_needs_another_to_have_run_is_found_in_either_order(tmp_path: Path) -> None:
    folder = artefacts(tmp_path, a__txt="x")
    makes, needs = shell("touch made; rm a.txt", name="makes"), {"kind": "file", "path": "made", "name": "needs"}
    for order in ([makes, needs], [needs, makes]):
        found = checked(rule_set(tmp_path, *order), folder)
        assert [flip.rule.name for flip in found.flips] == ["needs"]
        assert summarized(found.by_rule()["makes"]).changed == ("a.txt", "made")
        assert summarized(found.by_rule()["needs"]).changed == ()
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt"]
    said = needs | {"after": ["makes"]}
    assert not checked(rule_set(tmp_path, said, makes), folder).flips


def test_rules_that_do_not_bear_each_other_are_found(tmp_path: Path) -> None:
    rules = rule_set(tmp_path, shell(ALONE, name="one"), shell(ALONE, name="other"))
    flips = checked(rules, artefacts(tmp_path)).flips
    assert len(flips) == 1  # whichever came second when both ran at once
    assert [seen.mode for seen in flips[0].outcomes[0.0]] == [Mode.AT_ONCE]


def test_each_folder_is_judged_by_itself(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    (good / "a.txt").touch()
    found = checked(rule_set(tmp_path, {"kind": "file", "path": "a.txt"}, shell("test -e a.txt")), good, bad)
    assert not found.flips
    assert [one.seen[0].passed for one in found.found] == [1.0, 0.0, 1.0, 0.0]


def test_a_rule_that_is_broken_now_and_then_flips_and_one_that_always_is_is_told(tmp_path: Path) -> None:
    (tmp_path / "sometimes.py").write_text(
        "import pathlib\ndef judge(subject):\n"
        "    path = pathlib.Path(__file__).with_name('n')\n"
        "    path.write_text(path.read_text() + 'x' if path.exists() else 'x')\n"
        "    return 1 / (len(path.read_text()) % 2)\n"
    )
    rules = rule_set(
        tmp_path,
        {"kind": "python", "function": "sometimes:judge"},
        {"kind": "command", "command": "no-such-program-1"},
    )
    found = checked(rules, artefacts(tmp_path))
    assert [flip.rule.name for flip in found.flips] == ["rule 0"]
    assert [one.rule.name for one in found.broken] == ["rule 1"]


def test_only_rules_that_are_switched_on_run(tmp_path: Path) -> None:
    rules = rule_set(tmp_path, shell("true"), shell(ODD, from_version=5))
    assert not checked(rules, artefacts(tmp_path), version=4).flips
    assert checked(rules, artefacts(tmp_path), version=5).flips


def test_many_changes_are_told_in_part(tmp_path: Path) -> None:
    rules = rule_set(tmp_path, shell("for n in 1 2 3 4 5 6 7 8 9; do touch f$n; done; mkdir d; chmod 0 d"))
    (on_folders,) = checked(rules, artefacts(tmp_path)).by_rule().values()
    assert len(summarized(on_folders).changed) == MOST_NAMED


def test_independent_rules_run_side_by_side_and_results_keep_the_order_of_the_file(tmp_path: Path) -> None:
    wait = "touch {own}; until test -e {other}; do sleep 0.01; done"
    rules = rule_set(
        tmp_path,
        shell(wait.format(own="a", other="b"), name="a"),
        shell(wait.format(own="b", other="a"), name="b"),
        {"kind": "file", "path": "a", "name": "c", "after": ["a"]},
        at_once=2,
    )
    evaluation = evaluated(rules, artefacts(tmp_path))
    assert [(check.name, check.passed) for check in evaluation.checks] == [("a", 1.0), ("b", 1.0), ("c", 1.0)]


def test_all_rules_together_have_a_limit(tmp_path: Path) -> None:
    hangs = shell("sleep 60")
    rules = rule_set(tmp_path, shell("true"), hangs, hangs, hangs, at_once=2, seconds=1)
    evaluation = evaluated(rules, artefacts(tmp_path))
    assert evaluation.valid
    assert evaluation.score == 0.25
    assert {check.detail for check in evaluation.checks[1:]} == {"not done within its time limit"}


def test_cancelling_ends_what_rules_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    alive = tmp_path / "alive"
    script = "while true; do date +%s%N > {rules}/alive; sleep 0.02; done"
    rules = rule_set(tmp_path, shell(script), shell("sleep 60 & sleep 60"))

    async def begin_and_cancel() -> None:
        task = asyncio.create_task(RuleEvaluator(rules).evaluate(Subject("e", folder=artefacts(tmp_path))))
        while not alive.exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(begin_and_cancel())
    last = alive.read_text()
    time.sleep(0.3)
    assert alive.read_text() == last
    assert list(temporary.iterdir()) == []
