"""Torn and damaged logs: all that is whole is read, all that is lost is reported, and no record is ever wrong."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logged_calls import assert_same, chain_call, ids, plain_call, read_back

from gyre.errors import InputError
from gyre.trajectory.call import CallRecord
from gyre.trajectory.call_log import CallLog, CallLogWriter, open_logs
from gyre.trajectory.call_log.contexts import CHAIN_LIMIT
from gyre.trajectory.call_log.frame import FILE_HEADER, Frame, Kind, encode_frame, scan
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.tree import Refusal

SMALL = [chain_call(0, start=35), chain_call(1, start=35), plain_call(0, "f"), chain_call(2, start=35)]
RECORD = ExecutionRecord("e", "g", 1.0)


def small_log(path: Path) -> bytes:
    """Write four calls, the second and last as differences, and an execution's record; return the bytes."""
    with CallLogWriter(path) as writer:
        for call in SMALL:
            writer.append(call)
        writer.append_execution(RECORD)
    return path.read_bytes()


def ends(data: bytes) -> list[int]:
    """Return where each frame ends."""
    return [part.end for part in scan(data) if isinstance(part, Frame)]


def assert_sound(path: Path) -> int:
    """Fail where a record that is read differs from the one that was written; return how many were read."""
    count = 0
    with CallLog(path) as log:
        for name in ("e", "f"):
            for call in log.calls(name):
                assert_same(call, next(c for c in SMALL if (c.execution, c.call_id) == (name, call.call_id)))
                count += 1
        assert log.executions() in ((), (RECORD,))
        return count + len(log.executions())


def test_a_log_cut_at_any_byte_reads_up_to_its_last_whole_record_and_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # thousands of logs are opened and closed
    data = small_log(tmp_path / "whole.calls")
    path = tmp_path / "cut.calls"
    borders = [len(FILE_HEADER), *ends(data)]
    for size in range(len(data)):
        path.write_bytes(data[:size])
        whole = [end for end in borders if end <= size]
        assert assert_sound(path) == max(len(whole) - 1, 0)
        last = max(whole, default=0)
        with CallLog(path) as log:
            torn = [(problem.offset, problem.size) for problem in log.problems]
        assert torn == ([(last, size - last)] if size > last else [])
        with CallLogWriter(path) as writer:
            assert [(problem.offset, problem.size) for problem in writer.problems] == torn
            writer.append_execution(RECORD)
        with CallLog(path) as log:
            assert log.verify() == ()
            assert log.executions() == (RECORD,)
            assert sum(log.call_count(name) for name in "ef") == min(max(len(whole) - 1, 0), len(SMALL))


def test_any_changed_bit_is_reported_and_gives_no_wrong_record(tmp_path: Path) -> None:
    """One bit of each byte, each of the eight in turn."""
    data = small_log(tmp_path / "whole.calls")
    path = tmp_path / "flipped.calls"
    for place in range(len(data)):
        if place == FILE_HEADER.index(b"1}"):  # another digit there is another version: see below
            continue
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        count = assert_sound(path)
        with CallLog(path) as log:
            problems = log.verify()
            lost = sum(problem.dependents for problem in problems)
            refused = [refusal for name in "ef" for refusal in log.refusals(name)]
        assert any(problem.offset <= place < problem.offset + problem.size for problem in problems)
        assert count == 5 - lost - (place >= len(FILE_HEADER))
        assert len(refused) >= lost
        assert all(refusal.reason == "unreadable" for refusal in refused)


@settings(max_examples=150)
@given(st.data())
def test_bytes_lost_repeated_or_overwritten_anywhere_give_no_wrong_record(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.calls"
        with CallLogWriter(path) as writer:
            for number in range(6):
                same_size = np.roll(np.arange(36, dtype=np.int32), number // 2)
                writer.append(plain_call(number, input_ids=same_size, output_ids=ids(number), logprobs=None))
                writer.append(chain_call(number, start=35))
        expected = {call.call_id: call for call in read_back(path)["e"]}
        content = path.read_bytes()
        frames = [part.offset for part in scan(content) if isinstance(part, Frame)]
        place = st.integers(0, len(content)) | st.sampled_from(frames)
        for _ in range(data.draw(st.integers(1, 3))):
            start, end = sorted((data.draw(place), data.draw(place)))
            put = data.draw(st.sampled_from([b"", content[start:end] * 2, bytes(end - start)]) | st.binary(max_size=9))
            content = content[:start] + put + content[end:]
        path.write_bytes(content)
        try:
            log = CallLog(path)
        except InputError:
            assert not any(isinstance(part, Frame) for part in scan(content))
            return
        with log:
            for call in log.calls("e"):
                assert_same(call, expected[call.call_id])
            damaged = len(log.verify())
            assert bool(damaged) or not log.refusals("e")


def test_a_call_that_stands_where_the_base_was_is_not_taken_for_it(tmp_path: Path) -> None:
    """Two calls whose frames are of one size, and a third that continues the second, which is lost with its bytes."""
    path = tmp_path / "run.calls"
    one, two = (plain_call(number, input_ids=np.arange(40, dtype=np.int32) + number) for number in (0, 1))
    third = plain_call(2, input_ids=np.concatenate((two.input_ids, two.output_ids, ids(9))))
    with CallLogWriter(path) as writer:
        for call in (one, two, third):
            writer.append(call)
    data = path.read_bytes()
    first, second, last = (part for part in scan(data) if isinstance(part, Frame))
    assert first.end - first.offset == second.end - second.offset
    assert last.end - last.offset < second.end - second.offset  # a difference
    path.write_bytes(data[: second.offset] + data[second.end :])
    with CallLog(path) as log:
        assert [call.call_id for call in log.calls("e")] == ["c0"]
        assert [refusal.call_id for refusal in log.refusals("e")] == ["c2"]
        (problem,) = log.problems
        assert (problem.offset, problem.size) == (second.offset, last.end - last.offset)
        assert "a call that continues one which is not in the log" in str(problem)


def test_damage_takes_the_calls_of_its_chain_with_it_and_no_others(tmp_path: Path) -> None:
    """Call 40 stands in the second chain of 32: what continues it is lost up to call 63, and 64 is written in full."""
    path = tmp_path / "run.calls"
    with CallLogWriter(path) as writer:
        for number in range(80):
            writer.append(chain_call(number))
            writer.append(chain_call(number, execution="other"))
    data = bytearray(path.read_bytes())
    frame = [part for part in scan(bytes(data)) if isinstance(part, Frame)][2 * 40]
    for place, by_headers in ((frame.offset + 40, True), (frame.end - 1, False)):  # its header, its payload
        damaged = data.copy()
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with CallLog(path) as log:
            assert len(log.problems) == by_headers
            (problem,) = log.verify()
            kept = [call.sequence for call in log.calls("e")]
            refusals = log.refusals("e")
            assert len(list(log.calls("other"))) == 80
        assert kept == [*range(40), *range(2 * CHAIN_LIMIT, 80)]
        assert problem.dependents == 2 * CHAIN_LIMIT - 41
        assert (problem.offset, problem.size) == (frame.offset, frame.end - frame.offset)
        assert f"{path}: {problem.size} bytes from byte {problem.offset}: damaged" in str(problem)
        assert "23 later calls" in str(problem)
        assert [refusal.sequence for refusal in refusals] == [*range(40 + by_headers, 2 * CHAIN_LIMIT)]
        assert "continues the call at byte" in refusals[-1].text


def test_zeros_at_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    """As a power failure leaves a file whose size was written before its content."""
    path = tmp_path / "run.calls"
    data = small_log(path)
    path.write_bytes(data + bytes(5000))
    assert assert_sound(path) == 5
    with CallLogWriter(path) as writer:
        assert [(problem.offset, problem.size) for problem in writer.problems] == [(len(data), 5000)]
        assert "torn" in str(writer.problems[0])
    assert path.read_bytes() == data


def test_a_lost_file_header_loses_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    data = small_log(path)
    path.write_bytes(data[10:])
    assert assert_sound(path) == 5


@pytest.mark.parametrize("content", [b"hello\n", b"{}\n", bytes(100), b'{"format":"gyre-call', b"PAR1" * 100])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.calls"
    path.write_bytes(content)
    if FILE_HEADER.startswith(content):
        CallLogWriter(path).close()
        return
    for opened in (CallLog, CallLogWriter, open_logs):
        with pytest.raises(InputError, match=r"run\.calls: not a call log"):
            opened(path)
    assert path.read_bytes() == content


def test_a_log_of_a_newer_gyre_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    path.write_bytes(small_log(tmp_path / "old.calls").replace(b'"version":1', b'"version":2', 1))
    for opened in (CallLog, CallLogWriter):
        with pytest.raises(InputError, match="version 2, this gyre reads 1; update gyre"):
            opened(path)


@pytest.mark.parametrize(
    ("kind", "header", "payload"),
    [
        (9, b'{"execution":"e"}', b""),
        (Kind.CALL, b"[]", b""),
        (Kind.CALL, b"{}", b""),
        (Kind.CALL, b'{"execution":[]}', b""),
        (Kind.CALL, b'{"execution":5}', b""),
        (Kind.CALL, b'{"execution":"e","base":[Infinity,0,0]}', b""),
        (Kind.EXECUTION, b'{"execution":"e","group":null}', b""),
        (Kind.EXECUTION, b'{"execution":5,"group":"g"}', b""),
        (Kind.EXECUTION, b'{"execution":"e","group":"g","score":Infinity}', b""),
        (Kind.EXECUTION, b'{"execution":"e","group":"g","score":"1"}', b""),
        (Kind.CALL, b'{"execution":"e","base":7}', b""),
        (Kind.EXECUTION, b'{"execution":"e"}', b""),
        (Kind.EXECUTION, b'{"execution":"e","group":"g","colour":1}', b""),
    ],
)
def test_a_sound_frame_of_an_unknown_record_is_reported(
    tmp_path: Path, kind: Kind, header: bytes, payload: bytes
) -> None:
    path = tmp_path / "run.calls"
    data = small_log(path)
    path.write_bytes(data + encode_frame(kind, header, payload))
    assert assert_sound(path) == 5
    with CallLog(path) as log:
        (problem,) = log.problems
    assert problem.offset == len(data)
    assert "a record that this gyre cannot read" in str(problem)
    with CallLogWriter(path):
        pass
    assert path.read_bytes().startswith(data + encode_frame(kind, header, payload))


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        (b'"input":2,"output":0', bytes(4)),
        (b'"input":1,"output":0', bytes(5)),
        (b'"input":-1,"output":0', bytes(4)),
        (b'"output":0', bytes(4)),
        (b'"input":1,"output":0,"finish":"later"', bytes(4)),
        (b'"input":1,"output":0,"thread":3', bytes(4)),
        (b'"input":1,"output":0,"delivered":0', bytes(4)),
        (b'"input":1,"output":0,"media":[[0,1]]', bytes(4)),
        (b'"input":1e300,"output":0', bytes(4)),
        (b'"input":1,"output":0,"channels":[["x","<i4",[1' + b"0" * 400 + b"]]]", bytes(4)),
        (b'"input":1,"output":0,"base":[100000,5,3]', bytes(4)),
        (b'"input":1,"output":0,"channels":[["x","<i4",[-1]]]', bytes(4)),
        (b'"input":1,"output":0,"channels":[["x","|O",[0]]]', bytes(4)),
    ],
)
def test_a_sound_frame_of_a_call_that_does_not_fit_is_refused(tmp_path: Path, fields: bytes, payload: bytes) -> None:
    path = tmp_path / "run.calls"
    data = small_log(path)
    header = b'{"execution":"f","call_id":"x","sequence":5,' + fields + b"}"
    path.write_bytes(data + encode_frame(Kind.CALL, header, payload))
    with CallLog(path) as log:
        (refusal,) = log.refusals("f")
        assert (refusal.call_id, refusal.sequence, refusal.reason) == ("x", 5, "unreadable")
        assert f"byte {len(data)} of {path}" in refusal.text
        assert [type(call) for call in log.read("f")].count(CallRecord) == 1


def test_a_missing_log_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.calls: cannot be read \(No such file"):
        open_logs(tmp_path / "none.calls")
    with pytest.raises(InputError, match="holds no call log"):
        open_logs(tmp_path)


def test_an_empty_file_is_an_empty_log(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    path.touch()
    assert read_back(path) == {}
    with CallLogWriter(path) as writer:
        writer.append(chain_call(0))
    assert len(read_back(path)["e"]) == 1


@pytest.mark.parametrize("sequence", [b"1" + b"0" * 30, b"null", b'"x"'])
def test_a_call_without_a_usable_sequence_costs_itself_alone(tmp_path: Path, sequence: bytes) -> None:
    path = tmp_path / "run.calls"
    data = small_log(path)
    header = b'{"execution":"f","call_id":3,"sequence":' + sequence + b',"input":1,"output":0}'
    path.write_bytes(data + encode_frame(Kind.CALL, header, bytes(4)))
    with CallLog(path) as log:
        (refusal,) = log.refusals("f")
        assert (refusal.call_id, refusal.sequence, refusal.reason) == ("3", -1, "unreadable")
        assert "call_id is 3, expected a text" in refusal.text


def test_a_log_that_is_cut_short_while_it_is_read_gives_refusals(tmp_path: Path) -> None:
    path = tmp_path / "run.calls"
    with CallLogWriter(path) as writer:
        for number in range(6):
            writer.append(plain_call(number, input_ids=np.arange(3000 * number, 3000 * (number + 1), dtype=np.int32)))
    with CallLog(path) as log:
        reading = log.read("e")
        assert isinstance(next(reading), CallRecord)
        os.truncate(path, path.stat().st_size * 7 // 12)
        found = list(reading)
        assert [type(call) for call in found] == [CallRecord] * 2 + [Refusal] * 3
        assert len(log.verify()) == 3
