"""What is appended to a log comes back bit for bit, though inputs are written as differences."""

from __future__ import annotations

import math
import resource
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
from gyre.trajectory.call import CallRecord, Finish, Media, Placement
from gyre.trajectory.call_log import CallLog, CallLogWriter, open_logs
from gyre.trajectory.call_log.contexts import CHAIN_LIMIT
from gyre.trajectory.call_log.log_bytes import LogBytes
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
        queued_s=draw(st.floats()),
        first_s=draw(st.floats()),
        cached_tokens=draw(st.integers(-1, 2**40)),
        placements=tuple(draw(st.lists(st.builds(Placement, texts, st.floats(allow_nan=False), numbers), max_size=2))),
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
        ({"thread": 3}, "call 'c0' of execution 'e': thread is 3, expected a text"),
        ({"call_id": 3}, "call 3 of execution 'e': call_id is 3, expected a text"),
        ({"execution": None}, "execution None: execution is None, expected a text"),
        ({"sequence": 2**70}, "sequence is an integer of 71 bits, expected a whole number of 64 bits"),
        ({"sequence": -(2**70)}, "sequence is an integer of 71 bits, expected a whole number of 64 bits"),
        ({"sequence": True}, "sequence is True, expected a whole number"),
        ({"sequence": 1.0}, "sequence is 1.0, expected a whole number"),
        ({"start_s": 10**400}, "start_s is an integer of 1329 bits, expected a number of seconds"),
        ({"end_s": None}, "end_s is None, expected a number of seconds"),
        ({"finish": "later"}, "finish is 'later', expected one of stop, length"),
        ({"role": "boss"}, "role is 'boss', expected None or one of main"),
        ({"delivered": 1}, "delivered is 1, expected True or False"),
        ({"media": ((0, 1, "d"),)}, r"media\[0\] is a tuple, expected a Media"),
        ({"media": (Media(0, 2**70, "d"),)}, r"media\[0\].length is an integer of 71 bits"),
        ({"media": (Media(0, 1, None),)}, r"media\[0\].digest is None, expected a text"),  # type: ignore[arg-type]
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"group": None}, "execution 'e': group is None, expected a text"),
        ({"group": 5}, "group is 5, expected a text"),
        ({"execution": 5}, "execution 5: execution is 5, expected a text"),
        ({"score": "0.5"}, "score is '0.5', expected a finite number"),
        ({"score": True}, "score is True, expected a finite number"),
        ({"score": math.inf}, "score is inf, expected a finite number"),
        ({"score": 10**400}, "score is an integer of 1329 bits, expected a finite number"),
        ({"wall_s": -math.inf}, "wall_s is -inf, expected a finite number"),
    ],
)
def test_an_execution_that_the_log_cannot_keep_is_refused_before_it_is_written(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = tmp_path / "run.calls"
    with CallLogWriter(str(path)) as writer:
        with pytest.raises(InputError, match=said):
            writer.append_execution(ExecutionRecord(**({"execution": "e", "group": "g"} | changes)))
        writer.append_execution(ExecutionRecord("f", "g"))
    with CallLog(str(path)) as log:
        assert log.executions() == (ExecutionRecord("f", "g"),)


@pytest.mark.parametrize("score", [np.float32(0.5), np.float64(0.5), 0.5])
def test_a_score_of_any_float_type_is_a_float(tmp_path: Path, score: Any) -> None:
    with CallLogWriter(tmp_path / "run.calls") as writer:
        writer.append_execution(ExecutionRecord("e", "g", score))
        writer.append_execution(ExecutionRecord("none", "g", math.nan))
    with open_logs(str(tmp_path)) as logs:
        assert logs.executions() == (ExecutionRecord("e", "g", 0.5), ExecutionRecord("none", "g"))


def test_more_logs_than_a_process_may_open_are_read(tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 150
    for number in range(count):
        with CallLogWriter(tmp_path / f"{number:04d}.calls") as writer:
            writer.append(chain_call(number))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(100, most[0]), most[1]))
    try:
        with open_logs(tmp_path) as logs:
            assert [call.sequence for call in logs.calls("e")] == list(range(count))
            assert not logs.verify()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_a_log_that_is_replaced_or_removed_while_it_is_read_is_not_mistaken(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    with CallLogWriter(path) as writer:
        writer.append(chain_call(0))
    with CallLog(path) as log:
        path.rename(tmp_path / "away.calls")
        with pytest.raises(InputError, match="No such file"):
            list(log.read("e"))
        path.write_bytes((tmp_path / "away.calls").read_bytes())
        with pytest.raises(InputError, match="another file stands there now"):
            list(log.read("e"))


@given(st.binary(max_size=40), st.integers(0, 45), st.integers(0, 45), st.binary(min_size=1, max_size=2))
def test_bytes_of_a_file_are_read_as_bytes_in_memory(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, start: int, stop: int, wanted: bytes
) -> None:
    content = bytes(4090) + content * 3 + bytes(5000) + content
    path = tmp_path_factory.mktemp("bytes") / "file"
    path.write_bytes(content)
    with path.open("rb") as file:
        data = LogBytes(file.fileno(), len(content))
        for first, last in (
            (start, stop),
            (4090 + start, 4090 + stop),
            (start, start + 6000),
            (4095, len(content) + 9),
        ):
            assert data[first:last] == content[first:last]
        assert data.find(wanted, 4080 + start) == content.find(wanted, 4080 + start)
