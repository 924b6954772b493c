"""Commands as evaluators: exit codes, JSON, and the place they run in."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from evaluating import evaluated, left, settings_of, subject_of

from gyre.errors import InputError
from gyre.outcome import Outcome
from gyre.scoring.evaluation import Evaluation
from gyre.scoring.identity import identity_of
from gyre.scoring.state import folder_digest


def judged(folder: Path | None, *command: str, subject: dict[str, Any] | None = None, **settings: Any) -> Evaluation:
    return evaluated(settings_of("command", command=command, **settings), subject_of(folder, **subject or {}))


def shell(folder: Path | None, script: str, **more: Any) -> Evaluation:
    return judged(folder, "sh", "-c", script, **more)


@pytest.mark.parametrize(
    ("script", "valid", "score"), [("exit 0", True, 1.0), ("exit 1", True, 0.0), ("exit 2", False, None)]
)
def test_an_exit_code_is_the_score(script: str, valid: bool, score: float | None, tmp_path: Path) -> None:
    evaluation = shell(tmp_path, script)
    assert (evaluation.valid, evaluation.score) == (valid, score)


def test_exit_codes_have_scores_by_a_table(tmp_path: Path) -> None:
    table = {"0": 1.0, "10": 0.5}
    assert shell(tmp_path, "exit 10", scores=table).score == 0.5
    assert (
        shell(tmp_path, "echo why >&2; exit 1", scores=table).reason == "exit code 1 has no score, only 0, 10 have: why"
    )


def test_it_may_print_an_evaluation(tmp_path: Path) -> None:
    said = {"score": 0.25, "reference": "image:7", "checks": {"lint": 0.5}, "details": {"n": 1}}
    evaluation = shell(tmp_path, f"echo '{json.dumps(said)}'", result="stdout")
    assert (evaluation.valid, evaluation.score, evaluation.reference) == (True, 0.25, "image:7")
    assert [(check.name, check.passed) for check in evaluation.checks] == [("lint", 0.5)]
    assert evaluation.details["n"] == 1
    assert evaluation.details["run"]["exit_code"] == 0


def test_it_may_write_an_evaluation_to_a_file_and_print_what_it_likes(tmp_path: Path) -> None:
    script = """echo '{"score": 1}'; echo '{"score": 0.75}' > "$GYRE_RESULT" """
    assert shell(tmp_path, script, result="file").score == 0.75
    assert shell(tmp_path, "true", result="file").reason == "it wrote no result"
    assert shell(tmp_path, 'ln -s /etc/passwd "$GYRE_RESULT"', result="file").reason == "it wrote no result"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo '{'", "unusable result: not JSON"),
        ("printf '\\377\\376'", "unusable result: not JSON"),
        ("echo '{\"score\": true}'", "score is True, expected a number"),
        ("true", "unusable result: it is empty"),
        ("exec >&-; true", "unusable result: it is empty"),
        ("echo '{\"score\": 1}'; exit 3", "exit code 3, expected 0 with a result"),
        ("echo '{\"score\": 1}'; kill -9 $$", "killed by SIGKILL"),
        ("head -c 3000 /dev/zero", "unusable result: it has 3,000 bytes, more than the limit"),
    ],
)
def test_what_cannot_be_read_is_not_valid_and_not_zero(script: str, why: str, tmp_path: Path) -> None:
    evaluation = shell(tmp_path, script, result="stdout", limits={"output_bytes": 2000})
    assert (evaluation.valid, evaluation.score) == (False, None)
    assert why in evaluation.reason


def test_the_subject_comes_by_a_file_and_on_stdin(tmp_path: Path) -> None:
    script = 'cmp - "$GYRE_SUBJECT" && cp "$GYRE_SUBJECT" "$OUT"; cd "$GYRE_ARTEFACTS" && test -f answer'
    given = {"data": {"expected": "π"}, "outcome": Outcome.HARNESS_TIMEOUT, "tool_calls": 3, "answer": "\ud800 odd"}
    folder, out = left(tmp_path / "a", answer="42"), tmp_path / "out.json"
    evaluation = shell(folder, script, env={"OUT": str(out)}, subject=given)
    assert evaluation.score == 1.0, evaluation
    said = json.loads(out.read_text())
    assert (said["execution"], said["outcome"], said["data"]) == ("e", "harness_timeout", {"expected": "π"})
    assert (said["tool_calls"], said["answer"], said["steps"]) == (3, "\ud800 odd", None)


def test_paths_are_filled_into_the_command(tmp_path: Path) -> None:
    folder = left(tmp_path / "a", answer="42")
    assert judged(folder, "test", "-f", "{artefacts}/answer").score == 1.0
    assert judged(folder, "grep", "-q", '"execution": "e"', "{subject}").score == 1.0


def test_what_an_execution_left_is_not_changed_by_judging(tmp_path: Path) -> None:
    folder = left(tmp_path / "a", answer="42")
    (folder / "locked").mkdir(mode=0o500)
    before = folder_digest(folder)
    assert shell(folder, "rm answer; echo > new").score == 1.0
    assert folder_digest(folder) == before
    assert shell(folder, "rm answer", place="artefacts").score == 1.0
    assert not (folder / "answer").exists()


def test_files_of_the_task_replace_those_of_the_execution(tmp_path: Path) -> None:
    """What judges must not come from what is judged; a link there must not lead the task's files elsewhere."""
    task, folder, outside = left(tmp_path / "task"), left(tmp_path / "a", check="exit 0"), left(tmp_path / "outside")
    left(task / "tests", check="exit 1")
    (folder / "tests").symlink_to(outside)
    assert shell(folder, "sh tests/check", overlay=str(task)).score == 0.0
    assert list(outside.iterdir()) == []
    left(task, check="exit 1")
    assert shell(folder, "sh check", overlay=str(task)).score == 0.0


def test_a_time_limit_may_have_a_score_of_its_own(tmp_path: Path) -> None:
    limits = {"wall_s": 0.3, "grace_s": 0}
    assert not shell(tmp_path, "sleep 1000", limits=limits).valid
    evaluation = shell(tmp_path, "sleep 1000", limits=limits, score_at_limit=0.0)
    assert (evaluation.valid, evaluation.score) == (True, 0.0)
    assert evaluation.reason.startswith("not done within its time limit")


def test_it_can_judge_an_answer_without_a_folder(tmp_path: Path) -> None:
    evaluation = shell(None, """grep -q '"answer": "42"' && test "$PWD" != /""", subject={"answer": "42"})
    assert evaluation.score == 1.0


def test_artefacts_that_are_gone_are_not_valid(tmp_path: Path) -> None:
    evaluation = shell(tmp_path / "gone", "true")
    assert (evaluation.valid, evaluation.reason) == (
        False,
        f"cannot be evaluated: {tmp_path}/gone: No such file or directory",
    )


def test_nothing_temporary_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    script = 'mkdir -p "$TMPDIR/a/b" "$HOME/x"; touch "$TMPDIR/a/b/c"; chmod 000 "$TMPDIR/a"'
    assert shell(left(tmp_path / "a", f="x"), script).score == 1.0
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "evaluator: kind: missing; give one of command, pytest, python, http, rules"),
        ({"kind": "magic"}, "evaluator: kind: 'magic' is unknown"),
        ({"kind": "command", "command": []}, "command: Tuple should have at least 1 item"),
        ({"kind": "command", "command": ["a"], "comand": 1}, "comand: unknown key; known keys: kind"),
        ({"kind": "command", "command": ["a"], "limits": {"wall": 1}}, "limits.wall: unknown key; known keys: wall_s"),
        ({"kind": "command", "command": ["a"], "place": "scratch", "overlay": "x"}, 'overlay: needs place = "copy"'),
        ({"kind": "command", "command": ["a"], "scores": {"0": float("nan")}}, "scores.0: Input should be a finite"),
        ({"kind": "pytest", "file": "a", "command": ["b"]}, "one of the three"),
        ({"kind": "python", "function": "module.function"}, "function: String should match"),
        ({"kind": "http", "url": "ftp://x"}, "'ftp://x' is no address of a service"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(values: dict[str, Any], why: str) -> None:
    from gyre.scoring.settings import evaluator_settings

    with pytest.raises(InputError) as refused:
        evaluator_settings(values)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_name_of_what_judges_follows_its_files(tmp_path: Path) -> None:
    left(tmp_path / "task", check="1")
    settings = settings_of("command", command=["sh", "check"], overlay=str(tmp_path / "task"))
    before = identity_of(settings)
    assert before.startswith("command:")
    assert identity_of(settings) == before
    left(tmp_path / "moved", check="1")
    assert identity_of(settings_of("command", command=["sh", "check"], overlay=str(tmp_path / "moved"))) == before
    left(tmp_path / "task", check="2")
    assert identity_of(settings) != before
    assert identity_of(settings_of("command", command=["sh", "other"])) != identity_of(
        settings_of("command", command=["sh"])
    )


def test_a_crash_has_the_score_that_is_stated_for_it(tmp_path: Path) -> None:
    assert not shell(tmp_path, "kill -SEGV $$").valid
    evaluation = shell(tmp_path, "kill -SEGV $$", score_at_crash=0.0)
    assert (evaluation.valid, evaluation.score) == (True, 0.0)
    assert evaluation.reason.startswith("killed by SIGSEGV")
    assert not shell(tmp_path, "exit 7", score_at_crash=0.0).valid  # an end of its own, with no score in the table


def test_a_closed_folder_is_judged_as_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it would run in the folder itself, too: an execution may close it behind itself."""
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "a")
    closed, lists = left(tmp_path / "a", answer="42"), os.scandir

    def refusing(path: str) -> Any:
        if Path(path).name == "a":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return lists(path)

    monkeypatch.setattr("os.scandir", refusing)
    for place in ("copy", "artefacts"):
        evaluation = shell(closed, "test -e answer", place=place)
        assert (evaluation.valid, evaluation.score) == (True, 0.0)
        assert evaluation.reason.endswith("count as not there: .")
