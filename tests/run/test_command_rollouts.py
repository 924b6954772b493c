"""Harnesses as commands: how they end, what they are given, what they leave, and what is ended with them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from local_run import LoggedGateway

from gyre.backends.run import process_sweep
from gyre.backends.run.attempts import Attempt, Attempts
from gyre.backends.run.command_rollouts import CommandRollouts, ExecutionFailedError
from gyre.backends.run.harness_command import HarnessCommand
from gyre.backends.run.harness_process import _GATE, HarnessProcess, ProcessLimits, ProcessMark, end_sessions
from gyre.backends.run.ports import Assignment, Ended
from gyre.backends.run.tasks import Task
from gyre.errors import InputError
from gyre.outcome import Outcome
from gyre.scoring.leftovers import marked

TASK = Task("t", prompt="Do it.", data={"secret": "42"})


@contextmanager
def rollouts(folder: Path, script: str, **options: Any) -> Iterator[CommandRollouts]:
    """Rollouts whose harness is a shell script."""
    (folder / "calls").mkdir(parents=True, exist_ok=True)
    gateway = LoggedGateway(folder / "calls" / "proxy.calls")
    try:
        command = HarnessCommand(("/bin/sh", "-c", script), grace_s=0.2, **options)
        yield CommandRollouts(command, gateway, Attempts(folder / "executions"))
    finally:
        gateway.close()


def run(folder: Path, script: str, *, execution: int = 3, task: Task = TASK, **options: Any) -> Ended:
    """Run one execution to its end."""
    with rollouts(folder, script, **options) as port:
        return asyncio.run(port.run(Assignment(execution, 1, 0, task), lambda: None))


def alive(folder: Path) -> list[int]:
    """Processes that were started for an attempt."""
    return marked(f"GYRE_FOLDER={folder.absolute()}")


@pytest.mark.parametrize(
    ("script", "options", "outcome"),
    [
        ("exit 0", {}, Outcome.COMPLETED),
        ("exit 3", {}, Outcome.AGENT_ERROR),
        ("sleep 60", {"harness_timeout_s": 0.1, "farewell_s": 0.05}, Outcome.HARNESS_TIMEOUT),
        ("trap '' TERM; sleep 60", {"harness_timeout_s": 0.1, "farewell_s": 0.05}, Outcome.HARNESS_TIMEOUT),
        ("sleep 60", {"overall_timeout_s": 0.1}, Outcome.OVERALL_TIMEOUT),
        ("sleep 60", {"harness_timeout_s": 50.0, "overall_timeout_s": 0.1}, Outcome.OVERALL_TIMEOUT),
        ("exit 0", {"setup": ("/bin/sh", "-c", "exit 1")}, Outcome.ENV_SETUP_FAILED),
        ("exit 0", {"setup": ("sleep", "60"), "overall_timeout_s": 0.1}, Outcome.OVERALL_TIMEOUT),
    ],
)
def test_every_end_has_its_outcome(tmp_path: Path, script: str, options: dict[str, Any], outcome: Outcome) -> None:
    assert run(tmp_path, script, **options).outcome is outcome
    assert alive(tmp_path / "executions" / "3" / "0") == []


@pytest.mark.parametrize("script", ["exit 75", "kill -9 $$", "kill -SEGV $$"])
def test_a_machines_failure_is_not_the_agents(tmp_path: Path, script: str) -> None:
    """UniRL#214: an infrastructure failure was taken for a normal end, and scored."""
    with pytest.raises(ExecutionFailedError, match=r"exit code 75|signal (9|11)"):
        run(tmp_path, script)


def test_a_harness_gets_its_own_and_nothing_of_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIVERS_SECRET", "yes")
    script = 'env > env.txt; cat > read.txt; cp "$GYRE_PROMPT_FILE" .; pwd > pwd.txt; echo {task}-{work} > filled.txt'
    ended = run(tmp_path, script, environment={"EXTRA": "{base_url}/x"})
    assert ended.folder is not None
    environment = dict(line.split("=", 1) for line in (ended.folder / "env.txt").read_text().splitlines())
    assert "DRIVERS_SECRET" not in environment
    assert environment["HOME"] == str(ended.folder.with_name("home"))
    assert environment["OPENAI_BASE_URL"] == "http://127.0.0.1:9/v1"
    assert environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9"
    assert environment["EXTRA"] == "http://127.0.0.1:9/x"
    assert environment["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "0"
    assert "42" not in environment.values(), "what is for the evaluator stays with it"
    assert (ended.folder / "read.txt").read_text() == "", "there is nobody at its stdin"
    assert (ended.folder / "prompt.txt").read_text() == "Do it."
    assert (ended.folder / "pwd.txt").read_text().strip() == str(ended.folder)
    assert (ended.folder / "filled.txt").read_text().strip() == f"t-{ended.folder}"


def test_a_working_folder_begins_with_the_tasks_files(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "given.txt").write_text("given")
    ended = run(tmp_path, "echo more >> given.txt", task=Task("t", files=files))
    assert ended.folder is not None
    assert (ended.folder / "given.txt").read_text() == "givenmore\n"
    assert (files / "given.txt").read_text() == "given"


def test_limits_hold_for_all_that_it_starts(tmp_path: Path) -> None:
    limits = ProcessLimits(open_files=33, file_bytes=4096)
    ended = run(tmp_path, "sh -c 'ulimit -n' > limit.txt; sh -c 'yes > big.txt'; exit 0", limits=limits)
    assert ended.folder is not None
    assert (ended.folder / "limit.txt").read_text().strip() == "33"
    assert (ended.folder / "big.txt").stat().st_size == 4096


def test_nothing_that_it_started_outlives_it(tmp_path: Path) -> None:
    """Children in its session, and a daemon that has left it."""
    run(tmp_path, "sleep 600 & setsid sleep 600 & exit 0")
    assert alive(tmp_path / "executions" / "3" / "0") == []


def test_cancelling_ends_it(tmp_path: Path) -> None:
    async def cancelled() -> None:
        with rollouts(tmp_path, "sleep 600 & sleep 600") as port:
            started = asyncio.Event()
            task = asyncio.create_task(port.run(Assignment(3, 1, 0, TASK), started.set))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancelled())
    assert alive(tmp_path / "executions" / "3" / "0") == []


def test_what_ended_is_not_run_again(tmp_path: Path) -> None:
    first = run(tmp_path, "echo once >> ../count.txt")
    assert run(tmp_path, "echo once >> ../count.txt") == first
    assert (tmp_path / "executions" / "3" / "0" / "count.txt").read_text() == "once\n"


def test_an_attempt_that_did_not_end_is_followed_by_another(tmp_path: Path) -> None:
    """Its calls have another name in the log, so that samples never mix two attempts."""
    Attempt(3, 0, tmp_path / "executions" / "3" / "0").make(TASK)
    ended = run(tmp_path, "exit 0")
    assert ended.calls == "3-1"
    assert ended.recorded == 3


def test_what_a_killed_driver_left_is_ended(tmp_path: Path) -> None:
    """By its recorded number and start time, and by its mark where it has left its session."""
    folder = tmp_path / "executions"
    attempt = Attempt(3, 0, folder / "3" / "0")
    attempt.make(TASK)
    marks = {"GYRE_FOLDER": str(attempt.folder), "GYRE_EXECUTIONS": str(folder)}

    async def abandon() -> subprocess.Popen[bytes]:
        process = await HarnessProcess.start(
            ["/bin/sh", "-c", "setsid sleep 600 & sleep 600 & sleep 600"],
            folder=attempt.work,
            environment={"PATH": os.defpath, **marks},
            output=attempt.folder / "output.log",
            record=attempt.process,
            limits=ProcessLimits(),
        )
        while len(alive(attempt.folder)) < 4:
            await asyncio.sleep(0.01)
        return process._process

    abandoned = asyncio.run(abandon())
    with rollouts(tmp_path, "exit 0") as port:
        asyncio.run(port.recover({3}))
    assert alive(attempt.folder) == []
    assert abandoned.wait() == -signal.SIGKILL
    assert attempt.folder.exists()


def test_a_number_that_is_anothers_by_now_is_left_alone() -> None:
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        mark = ProcessMark.of(other.pid)
        for stale in (
            ProcessMark(mark.pid, mark.start_ticks - 1, mark.boot),
            ProcessMark(mark.pid, mark.start_ticks, "another boot"),
        ):
            assert end_sessions([stale]) == 0
        assert other.poll() is None
        assert end_sessions([mark]) == 1
    finally:
        other.kill()
        other.wait()


def test_a_command_does_not_run_unless_its_driver_recorded_it(tmp_path: Path) -> None:
    """The gate's other end closes with the driver."""
    argv = ["/bin/sh", "-c", _GATE, "sh", "touch", str(tmp_path / "ran")]
    assert subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode == 125
    assert not (tmp_path / "ran").exists()
    assert subprocess.run(argv, input=b"go\n", check=False).returncode == 0
    assert (tmp_path / "ran").exists()


def test_recovery_forgets_what_is_not_needed(tmp_path: Path) -> None:
    run(tmp_path, "exit 0", execution=3)
    run(tmp_path, "exit 0", execution=4)
    with rollouts(tmp_path, "exit 0") as port:
        asyncio.run(port.recover({4}))
        assert port.ended(3) is None
        assert port.ended(4) is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("completed", "cancelled"), "its checksum does not fit"),
        (lambda text: text[: len(text) // 2], "damaged one"),
        (lambda text: text.replace('"version":1', '"version":9'), "version 9, this gyre reads 1"),
        (lambda text: text.replace("execution end", "recipe"), "a record of kind 'recipe'"),
        (lambda text: "[1, 2]", "no record of gyre"),
    ],
)
def test_a_record_that_cannot_be_believed_is_refused(tmp_path: Path, change: Callable[[str], str], words: str) -> None:
    run(tmp_path, "exit 0")
    path = tmp_path / "executions" / "3" / "0" / "end.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=words) as refused:
        run(tmp_path, "exit 0")
    assert str(path) in str(refused.value)
    assert "runs again" in str(refused.value)


def test_a_program_that_is_not_there_is_found_out_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no program 'no-such-harness'"):
        CommandRollouts(HarnessCommand(("no-such-harness",)), LoggedGateway(tmp_path / "a.calls"), Attempts(tmp_path))


def test_many_that_are_stopped_at_once_share_a_few_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at all processes for each of n executions costs n**2; those who ask meanwhile share the next one."""
    looks = []
    ended = process_sweep._ended
    monkeypatch.setattr(process_sweep, "_ended", lambda asked: looks.append(len(asked)) or ended(asked))

    async def stopped(port: CommandRollouts) -> None:
        begun = 0

        def started() -> None:
            nonlocal begun
            begun += 1

        tasks = [asyncio.create_task(port.run(Assignment(number, 1, 0, TASK), started)) for number in range(20)]
        while begun < len(tasks):
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    with rollouts(tmp_path, "sleep 600 & setsid sleep 600 & sleep 600") as port:
        asyncio.run(stopped(port))
    assert sum(looks) == 20
    assert len(looks) < 10
    assert all(alive(tmp_path / "executions" / str(number) / "0") == [] for number in range(20))
