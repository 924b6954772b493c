"""Calls from JSON lines: every name and form that is documented, and an error with the line for everything else."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logged_calls import assert_same, ids, plain_call, rich_call

from gyre.errors import InputError
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.call_log import CallLogWriter, jsonl, open_logs, read_calls_jsonl
from gyre.trajectory.check import Reason, refusal
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.recorded_calls import RecordedCalls

LEAST: dict[str, Any] = {"execution": "e", "input_ids": [1, 2, 3], "output_ids": [4, 5]}
LOGPROBS = [-0.5, -1.25]


def read(path: Path, *lines: dict[str, Any] | str) -> list[CallRecord | ExecutionRecord]:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return list(read_calls_jsonl(path))


def records_or_error(path: Path, *lines: dict[str, Any] | str) -> list[CallRecord | ExecutionRecord] | str:
    try:
        return read(path, *lines) if lines else list(read_calls_jsonl(path))
    except InputError as error:
        return str(error)


def read_one(path: Path, line: dict[str, Any]) -> CallRecord:
    (call,) = read(path, line)
    assert isinstance(call, CallRecord)
    return call


def test_what_may_be_left_out(tmp_path: Path) -> None:
    line = LEAST | {"logprobs": LOGPROBS}
    first, blank, second = line, "  ", line | {"execution": "f"}
    found = read(tmp_path / "x.jsonl", first, blank, second, first)
    names = [(call.execution, call.call_id, call.sequence) for call in found if isinstance(call, CallRecord)]
    assert names == [("e", "0", 0), ("f", "0", 0), ("e", "1", 1)]
    assert isinstance(found[0], CallRecord)
    assert_same(found[0], plain_call(call_id="0"))


def test_every_field(tmp_path: Path) -> None:
    call = rich_call(3)
    line = {
        "execution": "e",
        "call_id": "c3",
        "sequence": 3,
        "input_ids": [1, 2, 3],
        "output_ids": [4, 5],
        "logprobs": LOGPROBS,
        "versions": [3, 4],
        "finish": "tool_calls",
        "thread": "größe",
        "parent_thread": "main",
        "role": "sub_agent",
        "harness": "codex",
        "model": "m",
        "by_policy": False,
        "delivered": False,
        "start_s": 1.5,
        "end_s": 2.25,
        "queued_s": 1.625,
        "first_s": 1.75,
        "cached_tokens": 2,
        "placements": [
            {"engine": "http://a:1", "at_s": 1.6875},
            {"engine": "http://b:2", "at_s": 2.0, "tokens": 1},
        ],
        "media": [{"position": 2, "length": 1, "digest": "d2"}, {"position": 0, "length": 2, "digest": "d1"}],
        "channels": {name: rows.tolist() for name, rows in call.channels.items()},
    }
    found = read_one(tmp_path / "x.jsonl", line)
    for name, rows in call.channels.items():
        np.testing.assert_array_equal(found.channels[name], rows)
    found.channels.clear()  # type: ignore[attr-defined]
    found.channels.update(call.channels)  # type: ignore[attr-defined]
    assert_same(found, call)


@pytest.mark.parametrize(
    "changes",
    [
        {"logprobs": {"content": [{"token": "a", "logprob": value} for value in LOGPROBS]}},
        {"logprobs": {"content": None, "token_logprobs": LOGPROBS}},
        {"logprobs": {"token_logprobs": LOGPROBS, "text_offset": [0, 1]}},
        {"output_token_logprobs": [[LOGPROBS[0], 4, None], [LOGPROBS[1], 5, None]]},
    ],
)
def test_log_probabilities_as_engines_write_them(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_same(read_one(tmp_path / "x.jsonl", LEAST | changes), plain_call(call_id="0"))


def test_token_ids_by_the_names_that_engines_use(tmp_path: Path) -> None:
    line = {"execution": 7, "prompt_token_ids": [1, 2, 3], "token_ids": [4, 5], "logprobs": LOGPROBS}
    assert_same(read_one(tmp_path / "x.jsonl", line), plain_call(execution="7", call_id="0"))


@pytest.mark.parametrize("finish", ["length", {"type": "length", "length": 9}])
def test_finish_reasons(tmp_path: Path, finish: Any) -> None:
    assert read_one(tmp_path / "x.jsonl", LEAST | {"finish_reason": finish}).finish == Finish.LENGTH
    assert read_one(tmp_path / "x.jsonl", LEAST | {"finish_reason": None}).finish == Finish.STOP


@pytest.mark.parametrize("version", [{"versions": 6}, {"weight_version": "6"}, {"versions": [6, 6]}])
def test_one_version_stands_for_all_tokens(tmp_path: Path, version: dict[str, Any]) -> None:
    np.testing.assert_array_equal(read_one(tmp_path / "x.jsonl", LEAST | version).versions, ids(6, 6))


def test_a_null_among_log_probabilities_costs_the_call_only(tmp_path: Path) -> None:
    call = read_one(tmp_path / "x.jsonl", LEAST | {"logprobs": [-1, None]})
    assert call.logprobs is not None
    assert math.isnan(call.logprobs[1])
    found = refusal(call)
    assert found is not None
    assert found.reason == Reason.NAN_LOGPROB


def test_executions(tmp_path: Path) -> None:
    full = {"execution": "e", "group": 3, "score": 1, "harness": "h", "task": "t", "outcome": "o", "wall_s": 2.5}
    found = read(tmp_path / "x.jsonl", full, {"execution": "f", "group": "g", "score": None})
    assert found == [ExecutionRecord("e", "3", 1.0, "h", "t", "o", 2.5), ExecutionRecord("f", "g")]


def test_a_file_becomes_a_log(tmp_path: Path) -> None:
    lines = [LEAST | {"logprobs": LOGPROBS}] * 3
    with CallLogWriter(tmp_path / "x.calls") as writer:
        for record in read(tmp_path / "x.jsonl", *lines, {"execution": "e", "group": "g", "score": 0}):
            writer.append_record(record)
    with open_logs(tmp_path) as logs:
        assert logs.executions() == (ExecutionRecord("e", "g", 0.0),)
        assert len(list(logs.calls("e"))) == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON (EOF while parsing an object at byte 1)"),
        ('{"execution": }', "not JSON (expected value at byte 15)"),
        ("[" * 5000, "not JSON ("),
        ('{"execution": "\\ud800"}', "not JSON ("),
        ("[1]", "is a list, expected an object"),
        ("null", "is null, expected an object"),
        ({"execution": "e", "output_ids": []}, "field input_ids is missing"),
        (LEAST | {"execution": None}, "field execution is missing"),
        (LEAST | {"logprob": [1]}, "unknown field 'logprob'; known are execution, call_id"),
        (LEAST | {"token_ids": [4, 5]}, "field output_ids is given twice, the second time as token_ids"),
        (LEAST | {"input_ids": [1.5]}, "field input_ids: value 0 is 1.5, expected a whole number"),
        (LEAST | {"input_ids": [True]}, "field input_ids: value 0 is true, expected a whole number"),
        (LEAST | {"input_ids": [2, False]}, "field input_ids: value 1 is false, expected a whole number"),
        (LEAST | {"input_ids": ["a"]}, "field input_ids: value 0 is 'a', expected a whole number"),
        (LEAST | {"input_ids": [None]}, "field input_ids: value 0 is null, expected a whole number"),
        (LEAST | {"input_ids": [[1], [2]]}, "field input_ids: value 0 is a list, expected a whole number"),
        (LEAST | {"input_ids": [1, [2, 3]]}, "field input_ids: value 1 is a list, expected a whole number"),
        (LEAST | {"input_ids": "abc"}, "field input_ids: is 'abc', expected a list"),
        (LEAST | {"input_ids": [1, 2**31]}, "field input_ids: value 1 is 2147483648, which does not fit"),
        (LEAST | {"input_ids": [1, 2, 2**63]}, "value 2 is an integer of 64 bits, which does not fit 32 bits"),
        (LEAST | {"input_ids": [2**70]}, "field input_ids: value 0 is an integer of 71 bits"),
        (LEAST | {"logprobs": ["a"]}, "field logprobs: value 0 is 'a', expected a number"),
        (LEAST | {"logprobs": [-1, False]}, "field logprobs: value 1 is false, expected a number"),
        (LEAST | {"logprobs": [-1, -(10**400)]}, "field logprobs: value 1 is an integer of 1329 bits, expected a n"),
        (LEAST | {"logprobs": {"tokens": []}}, "field logprobs: has neither content nor token_logprobs"),
        (LEAST | {"logprobs": {"content": 5}}, "field logprobs: is 5, expected a list of objects"),
        (LEAST | {"logprobs": {"content": [{}]}}, 'value 0 of content is an object, expected an object with "logp'),
        (LEAST | {"logprobs": {"content": [1]}}, 'value 0 of content is 1, expected an object with "logprob"'),
        (LEAST | {"output_token_logprobs": [[], []]}, "field logprobs: value 0 is an empty list, expected [log-prob"),
        (LEAST | {"output_token_logprobs": [[-1, 4, ""], -1]}, "field logprobs: value 1 is -1, expected [log-prob"),
        (LEAST | {"finish": "later"}, "field finish: is 'later', expected one of stop, length"),
        (LEAST | {"finish": {"kind": 1}}, 'field finish: has no "type", expected a word'),
        (LEAST | {"finish": [1]}, "field finish: is a list, expected one of stop"),
        (LEAST | {"role": "boss"}, "field role: is 'boss', expected one of main"),
        (LEAST | {"by_policy": 1}, "field by_policy: is 1, expected true or false"),
        (LEAST | {"sequence": 1.0}, "field sequence: is 1.0, expected a whole number"),
        (LEAST | {"sequence": -(10**30)}, "field sequence: is an integer of 100 bits, expected a whole number of 64"),
        (LEAST | {"thread": []}, "field thread: is a list, expected a text"),
        (LEAST | {"start_s": "now"}, "field start_s: is 'now', expected a number"),
        (LEAST | {"start_s": 10**400}, "field start_s: is an integer of 1329 bits, expected a number"),
        (LEAST | {"weight_version": "default"}, "field versions: is 'default', expected a whole number"),
        (LEAST | {"versions": 2**40}, "field versions: is 1099511627776, expected a whole number of 32 bits"),
        (LEAST | {"versions": 7.5}, "field versions: is 7.5, expected a whole number"),
        (LEAST | {"media": [{"position": 1}]}, "field media: value 0 has no length"),
        (LEAST | {"media": [3]}, "field media: value 0 is 3, expected an object"),
        (LEAST | {"media": 3}, "field media: is 3, expected a list of objects"),
        (LEAST | {"channels": {"x": ["a"]}}, "field channels: 'x' is a list of something else, expected numbers"),
        (LEAST | {"channels": {"x": [[1], [1, 2]]}}, "field channels: 'x' is a list of something else"),
        (LEAST | {"channels": {"x": [10**30]}}, "field channels: 'x' is a list of something else"),
        (LEAST | {"channels": []}, "field channels: is a list, expected an object"),
        ({"execution": "e", "group": "g", "reward": 1}, "unknown field 'reward'; known are execution, group"),
        ({"execution": "e", "group": "g", "score": "good"}, "field score: is 'good', expected a number"),
        ({"execution": "e", "group": "g", "score": True}, "field score: is true, expected a number"),
        ({"execution": "e", "group": "g", "score": math.inf}, "field score: is inf, expected a finite number"),
        ({"execution": "e", "group": "g", "score": 10**400}, "field score: is an integer of 1329 bits"),
    ],
)
def test_errors_name_the_line_and_the_field(tmp_path: Path, line: dict[str, Any] | str, said: str) -> None:
    path = tmp_path / "x.jsonl"
    with pytest.raises(InputError) as caught:
        read(path, LEAST, line)
    message = str(caught.value)
    assert message.startswith(f"{path}: line 2: ")
    assert said in message
    assert "\n" not in message


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.jsonl: cannot be read"):
        list(read_calls_jsonl(tmp_path / "none.jsonl"))


_FIELDS = [
    *("execution", "group", "input_ids", "output_ids", "prompt_token_ids", "token_ids", "logprobs", "versions"),
    *("output_token_logprobs", "weight_version", "finish", "finish_reason", "sequence", "call_id", "thread", "role"),
    *("by_policy", "delivered", "start_s", "end_s", "queued_s", "first_s", "cached_tokens", "placements", "media"),
    *("channels", "score", "wall_s"),
    *("content", "token_logprobs", "logprob", "type", "position", "length", "digest"),
]
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from([2**31, 2**63, -(2**63) - 1, 2**64, 10**400, -(10**400), 1e300, -1e39, math.nan, math.inf])
    | st.floats()
    | st.sampled_from(["", "stop", "main", "7", "e"])
    | st.text(max_size=3)
)
_keys = st.sampled_from(_FIELDS) | st.text(max_size=3)
_values = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3))
_objects = st.fixed_dictionaries({}, optional=dict.fromkeys(_FIELDS[:6], _values)).flatmap(
    lambda some: st.dictionaries(_keys, _values, max_size=4).map(lambda more: more | some)
)


@settings(max_examples=400, deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(_FIELDS, _values)) | _objects | _values, st.booleans())
def test_any_json_value_is_a_record_or_an_error_with_its_line(
    tmp_path_factory: pytest.TempPathFactory, value: Any, sound: bool
) -> None:
    if sound and isinstance(value, dict):
        value = LEAST | value
    path = tmp_path_factory.mktemp("any") / "x.jsonl"
    first = LEAST | {"execution": "before"}
    found = records_or_error(path, first, value if isinstance(value, dict) else json.dumps(value))
    if isinstance(found, str):
        assert found.startswith(f"{path}: line 2: ")
        assert "\n" not in found
        return
    with CallLogWriter(path.with_suffix(".calls")) as writer:
        for record in found:
            writer.append_record(record)
    with RecordedCalls(path.with_suffix(".calls")) as calls:
        assert not calls.problems
        for name in calls.names:
            calls.tree(name)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_an_error_with_their_line(tmp_path_factory: pytest.TempPathFactory, line: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "x.jsonl"
    path.write_bytes(json.dumps(LEAST).encode() + b"\n" + line.replace(b"\n", b""))
    found = records_or_error(path)
    assert found.startswith(f"{path}: line 2: ") if isinstance(found, str) else len(found) == 1


def test_a_number_too_large_for_32_bits_is_infinite(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    call = read_one(tmp_path / "x.jsonl", LEAST | {"logprobs": [-1e39, -1]})
    assert not recwarn.list
    found = refusal(call)
    assert found is not None
    assert found.reason == Reason.INFINITE_LOGPROB


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LEAST).encode())
    assert len(list(read_calls_jsonl(path))) == 1


@pytest.mark.parametrize(
    ("begins", "said"),
    [(b"\x1f\x8b\x08", r"gzip: unpack it first"), (b"\x89PNG\r\n", "a PNG image"), (b"PAR1", "Parquet")],
)
def test_what_other_files_are_is_said(tmp_path: Path, begins: bytes, said: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(begins + bytes(20))
    with pytest.raises(InputError, match=rf"x\.jsonl: not JSON lines \({said}\)"):
        list(read_calls_jsonl(path))


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "LINE_BYTES", 1 << 20)
    path = tmp_path / "x.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(LEAST).encode() + b"\n")
        file.truncate(1 << 30)
    with pytest.raises(InputError, match=r"line 2: longer than 1 MB; give one call a line"):
        list(read_calls_jsonl(path))


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe: not a regular file"):
        list(read_calls_jsonl(tmp_path / "pipe"))
    with pytest.raises(InputError, match=r"pipe: not a regular file"):
        RecordedCalls(str(tmp_path / "pipe"))
