"""`gyre rules` as its users call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from rules_files import artefacts, rules_file

from gyre.cli import main
from gyre.scoring.rules import load_rules
from gyre.scoring.rules.kinds import KINDS

STABLE = {"kind": "command", "command": ["sh", "-c", "test -e a.txt"], "name": "stable"}
ODD = {
    "kind": "command",
    "command": ["sh", "-c", "echo x >> {rules}/count; test $(( $(wc -l < {rules}/count) % 2 )) = 1"],
    "name": "odd",
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["rules", *map(str, arguments)])


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_stable_rules_pass(tmp_path: Path) -> None:
    result = run("check", rules_file(tmp_path, STABLE), "--folder", artefacts(tmp_path, a__txt=""), "--times", 3)
    assert result.exit_code == 0, result.output
    assert "stable: every rule said the same each time" in result.stdout


def test_a_flip_is_named_with_both_outcomes(tmp_path: Path) -> None:
    folder = artefacts(tmp_path, a__txt="")
    result = run("check", rules_file(tmp_path, STABLE, ODD), "--folder", folder, "--jobs", 1)
    assert result.exit_code == 1
    told = result.stdout.partition("unstable on the same input")[2]
    lines = [line for line in told.splitlines() if "odd" in line]
    assert len(lines) == 2
    assert all(str(folder) in line for line in lines)
    assert [("passed" in line, "exit code 1" in line) for line in lines] == [(True, False), (False, True)]
    assert "stable" not in told


def test_machines_get_json(tmp_path: Path) -> None:
    folder = artefacts(tmp_path)
    result = run("check", rules_file(tmp_path, STABLE, ODD), "--folder", folder, "--times", 4, "--jobs", 1, "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["stable"] is False
    assert [(rule["rule"], rule["pass_share"], rule["flips"]) for rule in told["rules"]] == [
        ("stable", 0.0, 0),
        ("odd", 0.5, 1),
    ]
    (flip,) = told["flips"]
    assert (flip["rule"], flip["folder"]) == ("odd", str(folder))
    assert sorted(one["passed"] for one in flip["outcomes"]) == [0.0, 1.0]


def test_what_is_known_of_an_execution_is_given(tmp_path: Path) -> None:
    rules: list[dict[str, Any]] = [
        {"kind": "limit", "of": "steps", "at_most": 3},
        {"kind": "limit", "of": "tool_calls", "at_most": 3},
        {"kind": "regex", "answer": True, "pattern": {"task": "wanted"}},
    ]
    path, folder = rules_file(tmp_path, *rules), artefacts(tmp_path)
    (tmp_path / "task.json").write_text('{"wanted": "4.2"}')
    (tmp_path / "answer.txt").write_text("it is 4.2")
    given = ["--steps", 3, "--tool-calls", 0, "--answer", tmp_path / "answer.txt"]
    result = run("check", path, "--folder", folder, *given, "--task-data", tmp_path / "task.json", "--json")
    assert result.exit_code == 0, result.output
    assert [rule["pass_share"] for rule in json.loads(result.stdout)["rules"]] == [1.0, 1.0, 1.0]
    assert "rule 'rule 0': does not work" in refused("check", path, "--folder", folder, "--json")


def test_bad_input_is_refused_in_a_line(tmp_path: Path) -> None:
    path, folder = rules_file(tmp_path, STABLE), artefacts(tmp_path)
    assert "no such folder" in refused("check", path, "--folder", tmp_path / "missing")
    assert "cannot be read" in refused("check", tmp_path / "missing.toml", "--folder", folder)
    assert "cannot be read" in refused("explain", tmp_path / "missing.toml")
    (tmp_path / "task.json").write_text("[1]")
    assert "no JSON object" in refused("check", path, "--folder", folder, "--task-data", tmp_path / "task.json")
    (tmp_path / "task.json").write_text("[" * 100_000)
    assert "not JSON" in refused("check", path, "--folder", folder, "--task-data", tmp_path / "task.json")


def test_a_rule_that_does_not_work_here_is_refused(tmp_path: Path) -> None:
    path = rules_file(tmp_path, {"kind": "command", "command": "no-such-program-1"})
    assert "command not found: no-such-program-1" in refused("check", path, "--folder", artefacts(tmp_path))


def test_explanation_tells_shares_and_schedule(tmp_path: Path) -> None:
    process = {"kind": "limit", "of": "steps", "at_most": 9, "weight": 2}
    path = rules_file(tmp_path, STABLE, process, stages={"process": {"from_version": 10, "ramp_versions": 3}})
    shares = {}
    for version in (0, 10, 13):
        told = json.loads(run("explain", path, "--version", version, "--json").stdout)
        shares[version] = [rule["share"] for rule in told["rules"]]
    assert shares == {0: [1.0, 0.0], 10: [1 / 1.5, 0.5 / 1.5], 13: [1 / 3, 2 / 3]}
    shown = run("explain", path).stdout
    assert "at version 13" in shown
    assert "10, whole from 13" in shown
    assert "score = min(max(score, floor), ceiling)" in shown


def test_a_new_file_holds_a_rule_of_each_kind_and_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    assert run("new", path).exit_code == 0
    assert [rule.kind for rule in load_rules(path).rules] == list(KINDS)
    assert "exists already" in refused("new", path)
    assert run("new", path, "--force", "--kind", "file", "--kind", "command").exit_code == 0
    assert [rule.kind for rule in load_rules(path).rules] == ["command", "file"]
    assert "known kinds: command" in refused("new", path, "--force", "--kind", "llm")
    assert "name it .toml" in refused("new", tmp_path / "rules.yaml")
