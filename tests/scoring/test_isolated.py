"""Real processes that behave badly: each ends as a run with a reason, and nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from evaluating import children, is_alive, isolated, open_files, wait_until, wait_until_gone, written

from gyre.scoring.isolated import run_isolated
from gyre.scoring.isolated_run import Why
from gyre.scoring.limits import Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
MIB = 2**20


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def test_a_command_says_its_exit_code_and_what_it_printed(tmp_path: Path) -> None:
    run = isolated(["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path)
    assert (run.why, run.exit_code, run.failure) == (Why.EXITED, 3, "")
    assert (bytes(run.output.kept), run.errors.last_line) == (b"out\n", "err")


def test_a_command_that_hangs_is_asked_to_end_and_can_clean_up(tmp_path: Path) -> None:
    script = "trap 'echo cleaned > cleaned; exit 1' TERM; sleep 1000 & wait"
    run = isolated(["sh", "-c", script], tmp_path, wall_s=0.5, grace_s=20)
    assert (run.why, (tmp_path / "cleaned").read_text()) == (Why.TIME, "cleaned\n")
    assert run.failure == "not done within its time limit: it printed nothing"


def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    run = isolated(
        ["sh", "-c", "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done"], tmp_path, wall_s=0.5, grace_s=0.1
    )
    assert (run.why, run.exit_code) == (Why.TIME, -signal.SIGKILL)
    wait_until_gone(written(tmp_path / "pid"))


DAEMON = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:  # its parent ends: an orphan in a session of its own, with an empty environment
            script = "echo $$ > daemon; trap '' TERM HUP; while :; do sleep 0.05; done"
            os.execve("/bin/sh", ["sh", "-c", script], {"PATH": os.environ["PATH"]})
        os._exit(0)
    os.wait()
    while not os.path.exists("daemon"):
        time.sleep(0.01)
    %s
"""


@pytest.mark.parametrize(
    ("end", "why"),
    [("sys.exit(0)", Why.EXITED), ("time.sleep(1000)", Why.TIME), ("os.kill(os.getpid(), 9)", Why.EXITED)],
)
def test_what_it_left_running_is_ended_also_in_another_session(end: str, why: Why, tmp_path: Path) -> None:
    run = isolated(python(DAEMON % end), tmp_path, wall_s=5, grace_s=0.1)
    assert (run.why, run.stuck) == (why, False)
    assert run.left >= 1
    assert not any(map(is_alive, written(tmp_path / "daemon")))


def test_a_child_that_holds_the_pipe_does_not_hold_the_result(tmp_path: Path) -> None:
    run = isolated(["sh", "-c", "(sleep 1000; echo late) & echo $! > pid; echo done"], tmp_path)
    assert (run.why, bytes(run.output.kept)) == (Why.EXITED, b"done\n")
    assert not any(map(is_alive, written(tmp_path / "pid")))


def test_closed_output_is_no_end(tmp_path: Path) -> None:
    run = isolated(["sh", "-c", "echo begun; exec >&- 2>&-; sleep 0.2; exit 5"], tmp_path)
    assert (run.why, run.exit_code, bytes(run.output.kept)) == (Why.EXITED, 5, b"begun\n")


def test_a_gigabyte_of_output_is_counted_and_thrown_away(tmp_path: Path) -> None:
    run = isolated(
        ["sh", "-c", "head -c 1000000000 /dev/zero; echo end >&2"], tmp_path, output_bytes=1000, flood_bytes=10**9
    )
    assert (run.why, run.output.total, len(run.output.kept)) == (Why.EXITED, 10**9, 1000)
    assert run.output.cut
    assert bytes(run.errors.kept) == b"end\n"


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_a_flood_of_output_is_ended(stream: str, tmp_path: Path) -> None:
    run = isolated(["sh", "-c", f"yes{stream}"], tmp_path, output_bytes=1000, flood_bytes=10 * MIB)
    assert run.why is Why.FLOOD
    assert "printed more than its limit" in run.failure


def test_memory_of_all_processes_together_is_limited(tmp_path: Path) -> None:
    """Each stays below the limit; three of them do not."""
    code = f"import os, time; os.fork(); os.fork(); x = bytearray({80 * MIB}); time.sleep(1000)"
    run = isolated(python(code), tmp_path, memory_bytes=250 * MIB)
    assert run.why is Why.MEMORY
    assert run.memory_bytes > 250 * MIB


def test_memory_that_forked_processes_share_counts_once(tmp_path: Path) -> None:
    code = f"import os, time; x = bytearray({80 * MIB}); os.fork(); os.fork(); time.sleep(0.5)"
    assert isolated(python(code), tmp_path, memory_bytes=250 * MIB).why is Why.EXITED


def test_address_space_is_limited(tmp_path: Path) -> None:
    run = isolated(python(f"x = bytearray({2**30})"), tmp_path, address_space_bytes=512 * MIB)
    assert (run.exit_code, run.errors.last_line) == (1, "MemoryError")


def test_a_file_of_ten_gigabytes_is_not_written(tmp_path: Path) -> None:
    exec_dd = ["dd", "if=/dev/zero", "of=file", "bs=1M", "count=10240"]
    run = isolated(exec_dd, tmp_path, file_bytes=5 * MIB)
    assert run.failure.startswith("killed by SIGXFSZ, the limit on the size of a file")
    assert (tmp_path / "file").stat().st_size == 5 * MIB


def test_open_files_are_limited(tmp_path: Path) -> None:
    run = isolated(python("x = [open('/dev/null') for _ in range(100)]"), tmp_path, open_files=50)
    assert "Too many open files" in run.errors.last_line


def test_time_on_a_core_is_limited(tmp_path: Path) -> None:
    run = isolated(python("while True: pass"), tmp_path, cpu_s=1)
    assert run.out_of_time
    assert run.failure.startswith("killed by SIGXCPU, the CPU limit")


def test_a_fork_bomb_is_ended(tmp_path: Path) -> None:
    run = isolated(["sh", "-c", "f() { f | f & }; f; sleep 1000"], tmp_path, processes=40)
    assert (run.why, run.stuck) == (Why.PROCESSES, False)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_death_by_a_signal_is_named(number: signal.Signals, tmp_path: Path) -> None:
    run = isolated(["sh", "-c", f"echo last words >&2; kill -{int(number)} $$"], tmp_path)
    assert (run.why, run.exit_code) == (Why.EXITED, -number)
    assert run.failure.startswith(f"killed by {number.name}")
    assert run.failure.endswith("last words")


def test_a_command_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    assert isolated(["no-such-program"], tmp_path).failure == "cannot be started (No such file or directory)"
    assert isolated(["./plain"], tmp_path).failure == "cannot be started (Permission denied)"


def test_signals_to_the_confining_process_change_nothing(tmp_path: Path) -> None:
    run = isolated(["sh", "-c", "kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; sleep 0.2; exit 4"], tmp_path)
    assert (run.why, run.exit_code) == (Why.EXITED, 4)


def test_killing_the_confining_process_frees_nobody(tmp_path: Path) -> None:
    script = (
        "setsid sh -c 'echo $$ > pid; sleep 1000' & while ! test -s pid; do sleep 0.01; done; kill -9 $PPID; sleep 1000"
    )
    run = isolated(["sh", "-c", script], tmp_path)
    assert (run.why, run.failure) == (Why.ESCAPED, "the process that confined it is gone")
    wait_until_gone(written(tmp_path / "pid"))


def test_the_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "s")
    monkeypatch.setenv("PYTHONPATH", "p")
    given = tmp_path / "given"
    given.write_text("from stdin")
    run = isolated(["sh", "-c", "echo $A_SECRET:$PYTHONPATH:$HOME:$TMPDIR; cat"], tmp_path, stdin=given)
    scratch = tmp_path / "scratch"
    assert bytes(run.output.kept).decode() == f"::{scratch}/home:{scratch}/tmpdir\nfrom stdin"


def test_no_descriptor_and_no_zombie_is_left(tmp_path: Path) -> None:
    isolated(["true"], tmp_path)  # what the first run of a process opens for good
    before, born = open_files(), children()
    for argv in (["true"], ["no-such-program"], ["sh", "-c", "sleep 1000 & kill -9 $PPID"], ["yes"]):
        isolated(argv, tmp_path, flood_bytes=MIB)
    assert open_files() == before
    assert children() == born


@pytest.mark.parametrize("times", [1, 2])
def test_cancelling_ends_the_command(times: int, tmp_path: Path) -> None:
    async def cancelled() -> None:
        argv = ["sh", "-c", "setsid sh -c 'echo $$ > pid; sleep 1000' & trap '' TERM; wait"]
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        run = asyncio.create_task(run_isolated(argv, folder=tmp_path, scratch=scratch, limits=Limits()))
        started = await asyncio.to_thread(written, tmp_path / "pid")
        for _ in range(times):
            run.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await run
        await asyncio.to_thread(wait_until_gone, started)
        while children() != born:  # twice cancelled it does not wait, but is seen off all the same
            await asyncio.sleep(0.01)

    born, before = children(), open_files()
    asyncio.run(cancelled())
    assert open_files() == before


def test_when_whoever_asked_is_killed_nothing_of_it_stays(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = f"""
        import asyncio; from pathlib import Path
        from gyre.scoring.isolated import run_isolated; from gyre.scoring.limits import Limits
        argv = ["sh", "-c", "setsid sleep 1000 & echo $$ $! > pid; sleep 1000"]
        asyncio.run(run_isolated(argv, folder=Path({str(tmp_path)!r}), scratch=Path({str(scratch)!r}), limits=Limits()))
    """
    with subprocess.Popen(python(code), env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as process:
        started = written(tmp_path / "pid")
        assert all(map(is_alive, started))
        process.kill()
    wait_until_gone(started)
    wait_until(lambda: not scratch.exists())


def test_many_run_at_once_and_a_hung_one_holds_none_of_them(tmp_path: Path) -> None:
    """fw-ai/cookbook#692: a verifier that hangs left a group at 7 of 8 for ever."""

    async def eight() -> list[Why]:
        async def one(number: int) -> Why:
            scratch = tmp_path / str(number)
            scratch.mkdir()
            script = "sleep 1000" if number == 0 else "while ! test -e go; do sleep 0.02; done"
            limits = Limits(wall_s=2, grace_s=0)
            run = await run_isolated(["sh", "-c", script], folder=tmp_path, scratch=scratch, limits=limits)
            ended.append(number)
            return run.why

        ended: list[int] = []
        tasks = [asyncio.create_task(one(number)) for number in range(8)]
        await asyncio.sleep(0.1)  # the loop goes on while they run
        (tmp_path / "go").touch()
        reasons = await asyncio.gather(*tasks)
        assert ended[-1] == 0
        return reasons

    assert asyncio.run(eight()) == [Why.TIME] + [Why.EXITED] * 7
