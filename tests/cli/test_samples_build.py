"""`gyre samples build`: what it writes and prints, what it leaves alone, and how bad input ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from samples_command import BAD_INPUT, EXECUTIONS, calls_of, ok, refused, refused_in, run, write_log

from gyre.trajectory import (
    RecordedCalls,
    TrajectoryStore,
)


def test_build_says_what_was_built(log: Path, tmp_path: Path) -> None:
    said = ok("build", log, "--out", tmp_path / "s")
    assert "6 executions in 2 groups, 24 calls" in said
    assert "unique tokens" in said
    assert "refused: 6 × missing logprobs" in said
    assert f"gyre samples inspect {tmp_path / 's'} says in which" in said


def test_build_prints_json_for_machines(log: Path, tmp_path: Path) -> None:
    said = json.loads(ok("build", log, "--out", tmp_path / "s", "--json"))
    assert (said["executions"], said["groups"], said["calls"], said["refused"]) == (6, 2, 24, 6)
    assert said["refused_by_reason"] == {"missing_logprobs": 6}
    assert said["bytes_per_unique_token"] == pytest.approx(said["bytes"] / said["unique_tokens"])


def test_a_store_is_not_overwritten_without_being_told(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "s"
    ok("build", log, "--out", out)
    before = sorted((file.name, file.read_bytes()) for file in out.iterdir())
    assert "--resume, or replace it by --force" in refused("build", log, "--out", out)
    assert sorted((file.name, file.read_bytes()) for file in out.iterdir()) == before
    assert json.loads(ok("build", log, "--out", out, "--resume", "--json"))["there_before"] == 6
    assert json.loads(ok("build", log, "--out", out, "--force", "--json"))["built"] == 6
    other = tmp_path / "mine"
    other.mkdir()
    (other / "file").write_text("mine")
    assert "holds file" in refused("build", log, "--out", other, "--force")
    assert (other / "file").read_text() == "mine"


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_scores_come_from_a_table(suffix: str, tmp_path: Path) -> None:
    import polars as pl

    log = write_log(tmp_path / "run.calls", scores=False)
    assert "no execution has ended" in refused("build", log, "--out", tmp_path / "s")
    found = [1.0, 0.5, None, 0.0, 1.0]
    table = pl.DataFrame({"execution": [*EXECUTIONS[:4], "x"], "group": list("aaabx"), "score": found})
    scores = tmp_path / f"scores{suffix}"
    {".csv": table.write_csv, ".jsonl": table.write_ndjson, ".parquet": table.write_parquet}[suffix](scores)
    result = run("build", log, "--out", tmp_path / "s", "--scores", scores)
    assert result.exit_code == 0, result.output
    assert "4 executions in 2 groups" in result.stdout
    assert "without a valid score, and not trained: 1 execution\n" in result.stdout
    assert "left out: 2 executions of" in result.stdout
    assert "b/1, b/2" in result.stdout
    assert "1 execution with a score (x)" in result.stdout
    frame = TrajectoryStore.open(tmp_path / "s").executions()
    assert frame["score"].to_list() == [1.0, 0.5, None, 0.0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("execution,score\n", "no execution has ended"),
        ("execution,score\na/0,1\n", "scores.csv: row 1: execution a/0 has a score and no group"),
        ("execution,points\na/0,1\n", "no column 'score'"),
        ("execution,group,score\na/0,a,1\na/0,a,0\n", "row 2: execution is given twice"),
        ("execution,group,score\n,a,1\n", "row 1: execution is empty"),
        ("execution,group,score\na/0,a,good\n", "row 1: score is 'good'"),
        ("execution,group,score\na/0,a,inf\n", "give a finite number"),
    ],
)
def test_bad_scores_end_in_one_line_and_write_nothing(text: str, says: str, tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.calls", scores=False)
    scores = tmp_path / "scores.csv"
    scores.write_text(text)
    assert says in refused("build", log, "--out", tmp_path / "s", "--scores", scores)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.calls", "scores.csv"]


def test_calls_come_from_json_lines_too(log: Path, store: Path, tmp_path: Path) -> None:
    source = tmp_path / "calls.jsonl"
    lines = []
    for number, execution in enumerate(EXECUTIONS):
        for call in calls_of(execution):
            row: dict[str, Any] = {
                "execution": execution,
                "call_id": call.call_id,
                "thread": call.thread,
                "prompt_token_ids": call.input_ids.tolist(),
                "token_ids": call.output_ids.tolist(),
            }
            if call.logprobs is not None:
                row["logprobs"] = call.logprobs.tolist()
            if call.versions is not None:
                row["versions"] = call.versions.tolist()
            lines.append(row)
        lines.append({"execution": execution, "group": execution[0], "score": number % 2})
    source.write_text("\n".join(map(json.dumps, lines)))
    ok("build", source, "--out", tmp_path / "s")
    assert ok("inspect", tmp_path / "s", "--json") == ok("inspect", store, "--json") == ok("inspect", source, "--json")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("build", "missing", "--out", "s"), "cannot be read"),
        (("build", "STORE", "--out", "s"), "holds no call log"),
        (("build", "LOG", "--out", "s", "--scores", "scores.txt"), "not a table of scores"),
        (("build", "LOG", "--out", "s", "--scores", "scores.csv"), "cannot be read"),
    ],
)
def test_bad_input_of_build_ends_with_code_2_and_one_line(
    arguments: tuple[str, ...], says: str, store: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in refused_in(tmp_path, arguments, STORE=store, LOG=log)


def test_a_damaged_log_is_reported_and_the_rest_is_built(tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.calls")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 7)
    said = ok("build", log, "--out", tmp_path / "s")
    assert "5 executions" in said
    assert "left out: 1 execution of" in said
    assert f"{log}: " in said.splitlines()[-1]


def test_as_a_process_it_keeps_stdout_for_json_and_stderr_for_one_line(log: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from gyre.cli import main; main()", "samples"]
    done = subprocess.run(
        [*command, "build", str(log), "--out", str(tmp_path / "s"), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["executions"] == 6
    assert done.stderr == ""
    bad = subprocess.run([*command, "inspect", str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stdout) == (BAD_INPUT, "")
    assert bad.stderr.startswith("gyre: ")
    assert len(bad.stderr.splitlines()) == 1


def test_an_interrupt_leaves_a_store_that_resume_goes_on_with(
    log: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = RecordedCalls.read
    asked: list[str] = []

    def interrupting(calls: RecordedCalls, execution: str) -> Any:
        if execution == "b/1" and not asked:
            asked.append(execution)
            os.kill(os.getpid(), signal.SIGINT)
        return read(calls, execution)

    monkeypatch.setattr(RecordedCalls, "read", interrupting)
    result = run("build", log, "--out", tmp_path / "s")
    assert result.exit_code == 130
    assert result.stdout == ""
    assert "stopped with 3 executions of complete groups" in result.stderr
    assert "the group in work is lost, --resume goes on" in result.stderr
    assert list(TrajectoryStore.open(tmp_path / "s").groups()) == ["a"]
    said = json.loads(ok("build", log, "--out", tmp_path / "s", "--resume", "--json"))
    assert (said["there_before"], said["built"]) == (3, 3)
    assert ok("inspect", tmp_path / "s", "--json") == ok("inspect", store, "--json")
