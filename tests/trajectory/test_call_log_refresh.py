"""A log that is read while it is written: what was appended is taken in, and only that is walked over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.errors import InputError
from gyre.trajectory.call import CallRecord
from gyre.trajectory.call_log import CallLog, CallLogWriter
from gyre.trajectory.execution import ExecutionRecord


def call(execution: str, sequence: int) -> CallRecord:
    """A call that continues the one before it."""
    return CallRecord(
        execution=execution,
        call_id=f"c{sequence}",
        sequence=sequence,
        input_ids=np.arange(20 * sequence + 5, dtype=np.int32),
        output_ids=np.array([7], np.int32),
        logprobs=np.zeros(1, np.float32),
    )


def shown(log: CallLog) -> dict[str, list[tuple[str, bytes]]]:
    """Everything that a log says."""
    names = (*log.unfinished(), *(record.execution for record in log.executions()))
    return {name: [(one.call_id, one.input_ids.tobytes()) for one in log.calls(name)] for name in sorted(names)}


@given(st.lists(st.sampled_from(["a", "b", "end a", "refresh"]), max_size=30))
def test_a_refreshed_log_is_one_that_was_opened_just_now(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    path = tmp_path_factory.mktemp("log") / "run.calls"
    with CallLogWriter(path) as writer:
        log = CallLog(path)
        for number, step in enumerate(steps):
            if step == "refresh":
                log.refresh()
            elif step == "end a":
                writer.append_execution(ExecutionRecord("a", "g"))
            else:
                writer.append(call(step, number))
        log.refresh()
        fresh = CallLog(path)
        assert shown(log) == shown(fresh)
        assert log.executions() == fresh.executions()
        assert log.problems == fresh.problems == ()


def test_a_record_that_was_being_written_is_taken_in_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    with CallLogWriter(path) as writer:
        writer.append(call("a", 0))
        writer.append(call("a", 1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    log = CallLog(path)
    assert len(log.problems) == 1
    with path.open("ab") as file:
        file.write(whole[-20:])
    log.refresh()
    assert log.problems == ()
    assert log.call_count("a") == 2


def test_another_file_in_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    with CallLogWriter(path) as writer:
        writer.append(call("a", 0))
    log = CallLog(path)
    path.rename(tmp_path / "old.calls")
    with CallLogWriter(path) as writer:
        writer.append(call("a", 0))
    with pytest.raises(InputError, match="another file stands there now"):
        log.refresh()
