"""`gyre score`: from folders to a file of scores, whole after Ctrl-C and kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from samples_command import EXECUTIONS, write_log
from samples_command import ok as samples_ok

from gyre.cli import main
from gyre.trajectory import TrajectoryStore
from gyre.trajectory.scores import read_scores

BAD_INPUT, NOT_ALL_VALID, INTERRUPTED = 2, 1, 130
JUDGE = 'echo $(basename "$0") >> "$CALLS"; test -f answer || exit 7; grep -qx 42 answer'


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Folders of three executions: right, wrong, and one that the evaluator cannot judge."""
    folder = tmp_path / "runs"
    for name, answer in (("right", "42\n"), ("wrong", "41\n"), ("empty", None)):
        (folder / name).mkdir(parents=True)
        if answer:
            (folder / name / "answer").write_text(answer)
    return folder


@pytest.fixture
def judge(tmp_path: Path) -> Path:
    return settings_file(tmp_path, JUDGE)


def settings_file(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "judge.toml"
    values = {"command": ["sh", "-c", script]}
    path.write_text(
        f'kind = "command"\ncommand = {json.dumps(values["command"])}\nenv = {{CALLS = "{tmp_path}/calls"}}\n'
    )
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["score", *map(str, arguments)])


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == BAD_INPUT, result.output
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1]


def rows(path: Path) -> dict[str, dict[str, Any]]:
    return {row["execution"]: row for row in map(json.loads, path.read_text().splitlines())}


def calls(tmp_path: Path) -> int:
    path = tmp_path / "calls"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_each_folder_gets_a_row_and_not_valid_is_not_zero(runs: Path, judge: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    result = run(runs, "--each", "--evaluator", judge, "--out", out, "--attempts", 2)
    assert result.exit_code == NOT_ALL_VALID
    assert "3 executions: 2 valid, mean score 0.5, 1 not valid" in result.stdout
    found = rows(out)
    assert [(name, row["score"], row["valid"]) for name, row in found.items()] == [
        ("empty", None, False),
        ("right", 1.0, True),
        ("wrong", 0.0, True),
    ]
    assert found["empty"]["attempts"] == 2
    assert found["empty"]["reason"].startswith("exit code 7 has no score")
    assert {name: score.score for name, score in read_scores(out).items()} == {
        "empty": None,
        "right": 1.0,
        "wrong": 0.0,
    }


def test_all_valid_is_exit_code_zero_and_json_tells_everything(runs: Path, judge: Path) -> None:
    result = run(runs / "right", runs / "wrong", "--evaluator", judge, "--json")
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert [one["score"] for one in said["executions"]] == [1.0, 0.0]
    assert said["executions"][1]["details"]["run"]["exit_code"] == 1
    assert said["without_score"] == 0


def test_resume_evaluates_only_what_is_missing(runs: Path, judge: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    run(runs, "--each", "--evaluator", judge, "--out", out)
    before, made = rows(out), calls(tmp_path)
    out.unlink()
    (runs / "new").mkdir()
    (runs / "new" / "answer").write_text("42\n")
    run(runs, "--each", "--evaluator", judge, "--out", out, "--resume")
    assert calls(tmp_path) == made + 1
    assert rows(out) == {**before, "new": rows(out)["new"]}
    run(runs, "--each", "--evaluator", judge, "--out", out, "--force", "--attempts", 1)
    assert calls(tmp_path) == made + 1 + 4


def test_samples_are_built_with_the_scores(tmp_path: Path) -> None:
    """The file of scores is what `gyre samples build --scores` reads, groups included."""
    log, data, out = write_log(tmp_path / "run.calls", scores=False), tmp_path / "data.jsonl", tmp_path / "scores.jsonl"
    lines = [{"execution": name, "group": name[0], "answer": str(number)} for number, name in enumerate(EXECUTIONS)]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    judge = settings_file(tmp_path, 'grep -q \'"answer": "[024]"\'')
    assert run("--evaluator", judge, "--out", out, "--task-data", data).exit_code == 0
    samples_ok("build", log, "--out", tmp_path / "store", "--scores", out)
    store = TrajectoryStore.open(tmp_path / "store")
    assert len(store) == len(EXECUTIONS)


def test_a_file_says_how_executions_ended(runs: Path, judge: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    lines: list[dict[str, Any]] = [
        {"execution": "right", "group": "g", "outcome": "harness_timeout"},
        {"execution": "wrong", "group": "g", "outcome": "overall_timeout"},
        {"execution": "never ran", "group": "g", "outcome": "env_setup_failed"},
    ]
    data.write_text("\n".join(map(json.dumps, lines)))
    result = run(runs / "right", runs / "wrong", "--evaluator", judge, "--task-data", data, "--json")
    assert result.exit_code == 0
    said = {one["execution"]: (one["score"], one["valid"]) for one in json.loads(result.stdout)["executions"]}
    assert said == {"right": (1.0, True), "wrong": (None, False), "never ran": (0.0, True)}
    assert calls(tmp_path) == 1


def test_what_cannot_be_done_is_said_before_any_work(runs: Path, judge: Path, tmp_path: Path) -> None:
    out, data, bad = tmp_path / "scores.jsonl", tmp_path / "d.jsonl", tmp_path / "bad.toml"
    common = (runs / "right", "--evaluator", judge)
    bad.write_text('kind = "command"\ncommand = ["x"]\nlimit = 1\n')
    data.write_text('{"execution": "wrong", "grup": "g"}\n')
    twice = tmp_path / "other" / "right"
    twice.mkdir(parents=True)
    assert "limit: unknown key" in refused(runs / "right", "--evaluator", bad)
    assert "cannot be read" in refused(runs / "right", "--evaluator", tmp_path / "none.toml")
    assert "grup: unknown key" in refused(*common, "--task-data", data)
    data.write_text('{"execution": "wrong"}\n')
    assert "no line for execution right" in refused(*common, "--task-data", data)
    data.write_text('{"execution": "right"}\n{"execution": "gone"}\n')
    assert "line 2: execution gone has neither folder nor answer" in refused(*common, "--task-data", data)
    assert "is execution right too" in refused(*common, twice)
    assert "ends in .jsonl" in refused(*common, "--out", tmp_path / "scores.csv")
    assert "give --out FILE" in refused(*common, "--resume")
    assert "give one of them" in refused(*common, "--out", out, "--resume", "--force")
    assert "no execution to evaluate" in refused("--evaluator", judge)
    out.write_text("mine")
    assert "exists already" in refused(*common, "--out", out)
    out.unlink()
    out.with_suffix(".attempts.jsonl").write_text("mine")
    assert "go on with it by --resume" in refused(*common, "--out", out)
    assert "no record of evaluations" in refused(*common, "--out", out, "--resume")
    assert calls(tmp_path) == 0
    assert not out.exists()


SLOW = 'echo $$ >> "$CALLS"; while ! test -e "$CALLS.go"; do sleep 0.05; done'


def started(tmp_path: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start the command in a process of its own, and wait until its first evaluation runs."""
    command = [sys.executable, "-c", "from gyre.cli import main; main()", "score", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not calls(tmp_path):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_command_leaves_no_process_and_can_go_on(number: signal.Signals, runs: Path, tmp_path: Path) -> None:
    judge, out = (
        settings_file(tmp_path, f"test -e answer || exit 1; grep -q 41 answer && exit 0; {SLOW}"),
        tmp_path / "s.jsonl",
    )
    arguments = (runs, "--each", "--evaluator", judge, "--out", out, "--jobs", 3)
    with started(tmp_path, *arguments) as process:
        attempts = out.with_suffix(".attempts.jsonl")
        while not attempts.exists() or attempts.read_text().count("\n") < 2:  # empty and wrong are done
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    if number != signal.SIGKILL:
        assert process.returncode == INTERRUPTED
        assert said == "gyre: stopped with 2 of 3 executions evaluated; --resume goes on with it\n"
    assert not out.exists()
    (evaluator,) = map(int, (tmp_path / "calls").read_text().split())
    until = time.monotonic() + 60
    while Path(f"/proc/{evaluator}").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    (tmp_path / "calls.go").touch()
    assert run(*arguments, "--resume").exit_code == 0
    assert {name: row["score"] for name, row in rows(out).items()} == {"empty": 0.0, "right": 1.0, "wrong": 1.0}
    assert len((tmp_path / "calls").read_text().split()) == 2  # of the one that had not ended, and of nothing else


def test_help_is_listed() -> None:
    assert "score " in CliRunner().invoke(main, ["--help"]).stdout
    assert os.linesep.join(["Usage: main score [OPTIONS] FOLDER..."]) in run("--help").stdout
