"""Calls from JSON lines: every name and form that is documented, and an error with the line for everything else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logged_calls import assert_same, ids, plain_call, rich_call

from gyre.errors import InputError
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.call_log import CallLogWriter, open_logs, read_calls_jsonl
from gyre.trajectory.check import Reason, refusal
from gyre.trajectory.execution import ExecutionRecord

LEAST: dict[str, Any] = {"execution": "e", "input_ids": [1, 2, 3], "output_ids": [4, 5]}
LOGPROBS = [-0.5, -1.25]


def read(path: Path, *lines: dict[str, Any] | str) -> list[CallRecord | ExecutionRecord]:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return list(read_calls_jsonl(path))


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
        ("{", "EOF"),
        ("[1]", "is a list, expected an object"),
        ({"execution": "e", "output_ids": []}, "input_ids is missing"),
        (LEAST | {"execution": None}, "execution is missing"),
        (LEAST | {"logprob": [1]}, "unknown field logprob; known are execution, call_id"),
        (LEAST | {"token_ids": [4, 5]}, "output_ids is given twice, the second time as token_ids"),
        (LEAST | {"input_ids": [1.5]}, "input_ids: expected a list of whole numbers"),
        (LEAST | {"input_ids": [True]}, "input_ids: expected a list of whole numbers"),
        (LEAST | {"input_ids": ["a"]}, "input_ids: expected a list of whole numbers"),
        (LEAST | {"input_ids": [[1], [2]]}, "input_ids: expected a list of whole numbers"),
        (LEAST | {"input_ids": [[1], [2, 3]]}, "input_ids: "),
        (LEAST | {"input_ids": "abc"}, "input_ids: is a str, expected a list"),
        (LEAST | {"input_ids": [1, 2**31]}, "input_ids: value 1 is 2147483648, which does not fit"),
        (LEAST | {"input_ids": [2**70]}, "input_ids: "),
        (LEAST | {"logprobs": ["a"]}, "logprobs: is 'a', expected a number"),
        (LEAST | {"logprobs": {"tokens": []}}, "logprobs: "),
        (LEAST | {"logprobs": {"content": [{}]}}, "logprobs: "),
        (LEAST | {"finish": "later"}, "finish: 'later' is not a valid Finish"),
        (LEAST | {"role": "boss"}, "role: 'boss' is not a valid Role"),
        (LEAST | {"by_policy": 1}, "by_policy: is 1, expected true or false"),
        (LEAST | {"sequence": 1.0}, "sequence: is 1.0, expected a whole number"),
        (LEAST | {"thread": []}, "thread: is [], expected a text"),
        (LEAST | {"start_s": "now"}, "start_s: is 'now', expected a number"),
        (LEAST | {"weight_version": "default"}, "versions: "),
        (LEAST | {"media": [{"position": 1}]}, "media: "),
        (LEAST | {"media": 3}, "media: "),
        (LEAST | {"channels": {"x": ["a"]}}, "channels: 'x' is no list of numbers"),
        (LEAST | {"channels": []}, "channels: "),
        ({"execution": "e", "group": "g", "reward": 1}, "unknown field reward; known are execution, group"),
        ({"execution": "e", "group": "g", "score": "good"}, "score: is 'good', expected a number"),
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
