"""A writer that is killed, doubled, or out of disk or memory."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from logged_calls import assert_same, chain_call, plain_call, read_back

from gyre.errors import InputError
from gyre.trajectory.call_log import CallLog, CallLogWriter
from gyre.trajectory.execution import ExecutionRecord

WRITE_FOR_EVER = """
import sys
from itertools import count
from pathlib import Path
from logged_calls import chain_call
from gyre.trajectory.call_log import CallLogWriter
writer = CallLogWriter(Path(sys.argv[1]))
for number in count(int(sys.argv[2])):
    writer.append(chain_call(number))
    print(number, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_had_appended(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    moments = random.Random(5)
    acknowledged = -1
    for _ in range(4):
        command = [sys.executable, "-c", WRITE_FOR_EVER, str(path), str(acknowledged + 1)]
        here = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here) as process:
            assert process.stdout is not None
            for _ in range(moments.randrange(1, 120)):
                acknowledged = int(process.stdout.readline())
            process.kill()
            acknowledged = max([acknowledged, *map(int, process.stdout.read().split("\n")[:-1])])
        back = read_back(path)["e"]
        assert len(back) >= acknowledged + 1
        acknowledged = len(back) - 1
    for number, call in enumerate(back):
        assert_same(call, chain_call(number))
    with CallLogWriter(path) as writer:
        assert len(writer.problems) <= 1
    with CallLog(path) as log:
        assert log.verify() == ()


def test_a_second_writer_is_told_whose_the_log_is(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    with CallLogWriter(path) as writer:
        writer.append(chain_call(0))
        with pytest.raises(InputError, match=rf"run\.calls: in use by process {os.getpid()}"):
            CallLogWriter(path)
        with CallLogWriter(tmp_path / "other.calls"):
            pass
        writer.append(chain_call(1))
    with CallLogWriter(path) as writer:
        writer.append(chain_call(2))
    assert len(read_back(path)["e"]) == 3
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["other.calls", "run.calls"]


def test_a_full_disk_leaves_the_log_as_it_was_and_writing_goes_on_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with CallLogWriter(path) as writer:
        writer.append(chain_call(0))
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, unlimited[1]))
        try:
            for _ in range(2):
                with pytest.raises(InputError, match=r"run\.calls: cannot be written .*; free space"):
                    writer.append(chain_call(1))
                assert path.stat().st_size == size
            with pytest.raises(InputError, match="cannot be written"):
                writer.append_execution(ExecutionRecord("e", "g", task="x" * 100))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert len(read_back(path)["e"]) == 1
        writer.append(chain_call(1))
    with CallLog(path) as log:
        assert log.verify() == ()
        for number, call in enumerate(log.calls("e")):
            assert_same(call, chain_call(number))
            assert number < 2


def test_a_writer_that_cannot_be_opened_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match="not a call log"):
        CallLogWriter(path)
    path.unlink()
    CallLogWriter(path).close()
    (tmp_path / "folder.calls").mkdir()
    with pytest.raises(InputError, match=r"folder\.calls: cannot be written"):
        CallLogWriter(tmp_path / "folder.calls")
    with pytest.raises(InputError, match=r"let it end in \.calls"):
        CallLogWriter(tmp_path / "run.log")


def test_memory_is_let_go_when_an_execution_ends_and_never_exceeds_its_budget(tmp_path: Path) -> None:
    with CallLogWriter(tmp_path / "run.calls") as writer:
        for name in "abc":
            for number in range(5):
                writer.append(chain_call(number, execution=name, start=1000))
        newest = chain_call(4, start=1000)
        assert writer.context_bytes == 3 * (newest.input_ids.nbytes + newest.output_ids.nbytes)  # one context each
        writer.append_execution(ExecutionRecord("b", "g"))
        assert writer.context_bytes == 2 * (newest.input_ids.nbytes + newest.output_ids.nbytes)
        for name in "ac":
            writer.append_execution(ExecutionRecord(name, "g"))
        assert writer.context_bytes == 0
    with CallLogWriter(tmp_path / "tight.calls", context_bytes=10_000) as writer:
        for number in range(5):
            for name in "abcdef":
                writer.append(chain_call(number, execution=name, start=1000))
                assert writer.context_bytes <= 10_000
    assert all(len(calls) == 5 for calls in read_back(tmp_path / "tight.calls").values())


def test_many_branches_of_one_execution_hold_few_contexts(tmp_path: Path) -> None:
    with CallLogWriter(tmp_path / "run.calls") as writer:
        for number in range(200):
            call = chain_call(0, thread=str(number))
            writer.append(call)
        assert writer.context_bytes <= 16 * (call.input_ids.nbytes + call.output_ids.nbytes)


def test_a_closed_writer_writes_no_more(tmp_path: Path) -> None:
    writer = CallLogWriter(tmp_path / "deep" / "run.calls")
    writer.append(plain_call())
    writer.flush()
    writer.close()
    writer.close()
    writer.flush()
    with pytest.raises(ValueError, match="closed"):
        writer.append(plain_call())
    assert len(read_back(writer.path)["e"]) == 1
