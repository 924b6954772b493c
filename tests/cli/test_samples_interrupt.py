"""Ctrl-C and SIGTERM in `gyre samples`: exit code, the one line that is said, and what stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from samples_command import ok, run

from gyre.trajectory import RecordedCalls, TrajectoryStore

INTERRUPTED = 130


def interrupting_from(execution: str, monkeypatch: pytest.MonkeyPatch, *, times: int = 1) -> None:
    """Let this process be interrupted when an execution's calls are read."""
    read = RecordedCalls.read

    def interrupting(calls: RecordedCalls, name: str) -> Any:
        if name == execution:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return read(calls, name)

    monkeypatch.setattr(RecordedCalls, "read", interrupting)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_build_that_stored_nothing_leaves_nothing(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupting_from("a/0", monkeypatch)
    (tmp_path / "was there").mkdir()
    for out in (tmp_path / "s", tmp_path / "was there"):
        for option in ("--json", "--force"):
            result = run("build", log, "--out", out, option)
            assert (result.exit_code, result.stdout) == (INTERRUPTED, "")
            assert result.stderr == "gyre: stopped; nothing was stored\n"
    assert [path.name for path in tmp_path.iterdir()] == ["was there"]
    assert list((tmp_path / "was there").iterdir()) == []
    monkeypatch.undo()
    ok("build", log, "--out", tmp_path / "s")


def test_an_interrupted_replacement_leaves_the_old_store(
    log: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(store, tmp_path / "out"))
    before = files(out)
    interrupting_from("b/2", monkeypatch)
    result = run("build", log, "--out", out, "--force")
    assert result.exit_code == INTERRUPTED
    assert result.stderr == f"gyre: stopped; {out} is as it was\n"
    assert files(out) == before


def test_a_second_interrupt_ends_at_once_with_one_line(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupting_from("b/1", monkeypatch, times=2)
    result = run("build", log, "--out", tmp_path / "s")
    assert (result.exit_code, result.stderr) == (INTERRUPTED, "gyre: interrupted\n")
    assert list(TrajectoryStore.open(tmp_path / "s").groups()) == ["a"]


@pytest.mark.parametrize("command", [("inspect", "LOG"), ("inspect", "LOG", "a/0")])
def test_other_commands_end_so_too(command: tuple[str, ...], log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupting_from("a/0", monkeypatch)
    result = run(*(str(log) if word == "LOG" else word for word in command))
    assert (result.exit_code, result.stdout) == (INTERRUPTED, "")
    assert result.stderr.splitlines()[-1] == "gyre: interrupted"


def long_source(path: Path, lines: int) -> Path:
    call = json.dumps({"execution": "e", "input_ids": list(range(200)), "output_ids": [1], "logprobs": [-1.0]})
    with path.open("w") as file:
        for _ in range(lines):
            file.write(call + "\n")
        file.write(json.dumps({"execution": "e", "group": "g"}))
    return path


def temporary_files(process: subprocess.Popen[str]) -> Iterator[str]:
    """Names of a process's open files of the test's folder for what is temporary."""
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            name = str(link.readlink())
        except OSError:
            continue
        if "calls.calls" in name:
            yield name


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at a process's open files")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("command", ["build", "inspect"])
def test_reading_of_json_lines_is_ended_by_a_signal(command: str, number: signal.Signals, tmp_path: Path) -> None:
    source = long_source(tmp_path / "calls.jsonl", 200_000)  # more than is read before the signal comes
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    arguments = [command, str(source), *(["--out", str(tmp_path / "s")] if command == "build" else [])]
    with subprocess.Popen(
        [sys.executable, "-c", "from gyre.cli import main; main()", "samples", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:  # fmt: skip
        while not any("(deleted)" in name for name in temporary_files(process)):
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert out == ""
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == INTERRUPTED
        stopped = f"stopped while {source} was being read; nothing was stored"
        assert err == f"gyre: {stopped if command == 'build' else 'interrupted'}\n"
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "s").exists()
