"""What is appended to a log comes back bit for bit, though inputs are written as differences."""

from __future__ import annotations

import string
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from logged_calls import assert_same, chain_call, ids, plain_call, read_back, rich_call

from gyre.errors import InputError
from gyre.role import Role
from gyre.trajectory.call import CallRecord, Finish, Media
from gyre.trajectory.call_log import CallLog, CallLogWriter, open_logs
from gyre.trajectory.call_log.contexts import CHAIN_LIMIT
from gyre.trajectory.execution import ExecutionRecord

texts = st.text(st.characters(codec="utf-8"), max_size=5)
numbers = st.integers(0, 2**31 - 1)
token_arrays = hnp.arrays(np.int32, st.integers(0, 60), elements=st.integers(-3, 3))


@st.composite
def calls(draw: st.DrawFn, execution: st.SearchStrategy[str]) -> CallRecord:
    float_arrays = hnp.arrays(np.float32, st.integers(0, 6), elements=st.floats(width=32))
    int_arrays = hnp.arrays(np.int32, st.integers(0, 6), elements=st.integers(-1, 2))
    channel = hnp.arrays(st.sampled_from([np.uint8, np.float64, np.int16, np.bool_]), hnp.array_shapes(min_dims=0))
    return CallRecord(
        execution=draw(execution),
        call_id=draw(texts),
        sequence=draw(st.integers(-(2**40), 2**40)),
        input_ids=draw(token_arrays),
        output_ids=draw(token_arrays),
        logprobs=draw(st.none() | float_arrays),
        versions=draw(st.none() | int_arrays),
        finish=draw(st.sampled_from(Finish)),
        thread=draw(texts),
        parent_thread=draw(texts),
        role=draw(st.none() | st.sampled_from(Role)),
        harness=draw(texts),
        model=draw(texts),
        by_policy=draw(st.booleans()),
        delivered=draw(st.booleans()),
        start_s=draw(st.floats()),
        end_s=draw(st.floats()),
        media=tuple(draw(st.lists(st.builds(Media, numbers, numbers, texts), max_size=2))),
        channels=draw(st.dictionaries(texts, channel, max_size=2)),
    )


@settings(max_examples=60)
@given(st.lists(calls(st.sampled_from("ab")), max_size=8))
def test_any_call_comes_back_as_it_was(written: list[CallRecord]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.calls"
        with CallLogWriter(path) as writer:
            for call in written:
                writer.append(call)
        back = read_back(path)
        for execution in "ab":
            expected = [call for call in written if call.execution == execution]
            for left, right in zip(back.get(execution, []), expected, strict=True):
                assert_same(left, right)


@settings(max_examples=40)
@given(st.data())
def test_inputs_written_as_differences_equal_plain_copies(data: st.DataObject) -> None:
    """Continuations, retries, forks, cuts and edits of random earlier calls, under any budget of memory."""
    written: list[CallRecord] = []
    contexts = [np.arange(100, dtype=np.int32)]
    for number in range(data.draw(st.integers(1, 45))):
        base = data.draw(st.sampled_from(contexts))
        tokens = base[: data.draw(st.integers(0, len(base)) | st.just(len(base)))]
        tokens = np.concatenate((tokens, data.draw(hnp.arrays(np.int32, st.integers(0, 3), elements=st.just(5)))))
        call = plain_call(number, input_ids=tokens, thread=data.draw(st.sampled_from(["", "x"])))
        written.append(call)
        contexts.append(np.concatenate((tokens, call.output_ids)))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.calls"
        with CallLogWriter(path, context_bytes=data.draw(st.sampled_from([0, 1000, 10**6]))) as writer:
            for call in written:
                writer.append(call)
        for left, right in zip(read_back(path)["e"], written, strict=True):
            assert_same(left, right)


def test_every_field_of_a_call(tmp_path: Path) -> None:
    with CallLogWriter(tmp_path / "run.calls") as writer:
        writer.append(rich_call())
    assert_same(read_back(tmp_path / "run.calls")["e"][0], rich_call())


def test_a_long_conversation_is_written_once_and_a_little(tmp_path: Path) -> None:
    count = 4 * CHAIN_LIMIT
    with CallLogWriter(tmp_path / "run.calls") as writer:
        for number in range(count):
            writer.append(chain_call(number, start=5000))
    size = (tmp_path / "run.calls").stat().st_size
    inputs = sum(chain_call(number, start=5000).input_ids.nbytes for number in range(count))
    full = 4 * chain_call(count, start=5000).input_ids.nbytes  # one in 32 calls
    assert size < full + 400 * count
    assert size < inputs / 10
    with CallLog(tmp_path / "run.calls") as log:
        for number, call in enumerate(log.calls("e")):
            assert_same(call, chain_call(number, start=5000))


def test_conversations_that_alternate_are_all_written_as_differences(tmp_path: Path) -> None:
    """A main thread and nine sub-agents that share no token, with and without names of threads."""
    sizes = []
    for named in (True, False):
        path = tmp_path / f"{named}.calls"
        with CallLogWriter(path) as writer:
            for number in range(20):
                for thread in "abcdefghij":
                    call = chain_call(number, start=2000, thread=thread)
                    writer.append(call if named else plain_call(input_ids=call.input_ids, output_ids=call.output_ids))
        sizes.append(path.stat().st_size)
        assert len(read_back(path)["e"]) == 200
    assert max(sizes) < 10 * 2400 * 4 + 200 * 400


def test_executions_by_their_last_record(tmp_path: Path) -> None:
    first, other, last = (ExecutionRecord(*values) for values in (("a", "g"), ("b", "g", 0.5), ("a", "g", 1.0)))
    with CallLogWriter(tmp_path / "run.calls") as writer:
        writer.append(plain_call(execution="a"))
        writer.append_execution(first)
        writer.append_execution(other)
        writer.append(plain_call(execution="running"))
        writer.append_execution(last)
    with CallLog(tmp_path / "run.calls") as log:
        assert log.executions() == (other, last)
        assert log.unfinished() == ("running",)
        assert [log.call_count(name) for name in ("a", "b", "running", "unknown")] == [1, 0, 1, 0]
        assert list(log.calls("unknown")) == []
        assert log.problems == log.verify() == ()


def test_a_folder_of_logs_reads_as_one(tmp_path: Path) -> None:
    for name, numbers in (("a", (0, 1)), ("b", (2, 3))):
        with CallLogWriter(tmp_path / f"{name}.calls") as writer:
            for number in numbers:
                writer.append(chain_call(number))
    with CallLogWriter(tmp_path / "b.calls") as writer:
        writer.append_execution(ExecutionRecord("e", "g", 1.0))
    with open_logs(tmp_path) as logs:
        assert [call.sequence for call in logs.calls("e")] == [0, 1, 2, 3]
        assert logs.executions() == (ExecutionRecord("e", "g", 1.0),)
        assert logs.unfinished() == ()
        assert logs.call_count("e") == 4
        assert logs.verify() == logs.problems == ()
        assert logs.refusals("e") == ()
    with open_logs(tmp_path / "a.calls") as logs:
        assert logs.unfinished() == ("e",)


def test_a_log_is_read_while_it_is_written(tmp_path: Path) -> None:
    with CallLogWriter(tmp_path / "run.calls") as writer:
        for number in range(3):
            writer.append(chain_call(number))
            assert len(read_back(tmp_path / "run.calls")["e"]) == number + 1


def test_logs_joined_end_to_end_keep_their_calls(tmp_path: Path) -> None:
    """As `cat a.calls b.calls` does: differences refer to their base by distance."""
    for name in "ab":
        with CallLogWriter(tmp_path / f"{name}.calls") as writer:
            for number in range(4):
                writer.append(chain_call(number, execution=name))
    joined = tmp_path / "joined.calls"
    joined.write_bytes((tmp_path / "a.calls").read_bytes() + (tmp_path / "b.calls").read_bytes())
    for name, back in read_back(joined).items():
        for number, call in enumerate(back):
            assert_same(call, chain_call(number, execution=name))
    with CallLog(joined) as log:
        assert [problem.offset for problem in log.problems] == [(tmp_path / "a.calls").stat().st_size]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"input_ids": [1, 2]}, "input_ids is list, expected int32"),
        ({"input_ids": None}, "input_ids is NoneType"),
        ({"output_ids": np.array([1, 2])}, "output_ids is int64 of 1 dimensions, expected int32"),
        ({"logprobs": np.array([-1.0, -1.0])}, "logprobs is float64"),
        ({"versions": ids(1, 2).reshape(1, 2)}, "versions is int32 of 2 dimensions"),
        ({"channels": {"x": np.array(["a", "b"])}}, r"channels\['x'\] holds no numbers"),
        ({"thread": "\ud800"}, "execution 'e': cannot be recorded"),
    ],
)
def test_what_the_log_cannot_keep_is_refused_before_it_is_written(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with CallLogWriter(tmp_path / "run.calls") as writer:
        writer.append(chain_call(0))
        with pytest.raises(InputError, match=said):
            writer.append(plain_call(**changes))
        writer.append(chain_call(1))
    assert len(read_back(tmp_path / "run.calls")["e"]) == 2


def test_ids_and_threads_need_no_ascii(tmp_path: Path) -> None:
    with CallLogWriter(tmp_path / "run.calls") as writer:
        for letter in string.whitespace + '"\\\0é😀':
            writer.append(plain_call(execution=letter))
    assert set(read_back(tmp_path / "run.calls")) == set(string.whitespace + '"\\\0é😀')
