"""Calls to log, and how to tell that two are the same."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from gyre.role import Role
from gyre.trajectory.call import CallRecord, Finish, Media, Placement
from gyre.trajectory.call_log import CallLog


def ids(*values: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return token ids."""
    return np.array(values, np.int32)


def plain_call(number: int = 0, execution: str = "e", **changes: Any) -> CallRecord:
    """Return a small sound call."""
    values: dict[str, Any] = {
        "execution": execution,
        "call_id": f"c{number}",
        "sequence": number,
        "input_ids": ids(1, 2, 3),
        "output_ids": ids(4, 5),
        "logprobs": np.array([-0.5, -1.25], np.float32),
    }
    return CallRecord(**(values | changes))


def rich_call(number: int = 0, execution: str = "e") -> CallRecord:
    """Return a call in which every field has a value of its own."""
    return plain_call(
        number,
        execution,
        versions=ids(3, 4),
        finish=Finish.TOOL_CALLS,
        thread="größe",
        parent_thread="main",
        role=Role.SUB_AGENT,
        harness="codex",
        model="m",
        by_policy=False,
        delivered=False,
        start_s=1.5,
        end_s=2.25,
        queued_s=1.625,
        first_s=1.75,
        cached_tokens=2,
        placements=(Placement("http://a:1", 1.6875), Placement("http://b:2", 2.0, 1)),
        media=(Media(0, 2, "d1"), Media(2, 1, "d2")),
        channels={"experts": np.arange(12, dtype=np.uint8).reshape(2, 3, 2), "scalar": np.array(7.5)},
    )


def chain_call(number: int, execution: str = "e", start: int = 200, thread: str = "") -> CallRecord:
    """Return call `number` of a conversation: its input is the call before, its output, and 5 tokens more."""
    tokens = np.arange(start + 8 * (number + 1), dtype=np.int32) * 7 % 1009 + (hash_of(execution + thread) % 97)
    logprobs = -np.arange(1, 4, dtype=np.float32) / (number + 2)
    return plain_call(
        number,
        execution,
        call_id=f"{thread}{number}",
        input_ids=tokens[:-3],
        output_ids=tokens[-3:],
        logprobs=logprobs,
        thread=thread,
    )


def hash_of(text: str) -> int:
    """Return a number that depends on the text alone."""
    return sum(ord(letter) * (place + 1) for place, letter in enumerate(text))


def assert_same(left: CallRecord, right: CallRecord) -> None:
    """Fail where two calls differ in any field, bit for bit."""
    for field in fields(CallRecord):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if field.name == "channels":
            assert one.keys() == other.keys()
            for name in one:
                _assert_equal(one[name], other[name], name)
        elif isinstance(one, np.ndarray):
            _assert_equal(one, other, field.name)
        else:
            assert one == other or (math.isnan(one) and math.isnan(other)), field.name


def _assert_equal(one: Any, other: Any, name: str) -> None:
    assert one.dtype == other.dtype, name
    assert one.shape == other.shape, name
    assert one.tobytes() == other.tobytes(), name


def read_back(path: Path) -> dict[str, list[CallRecord]]:
    """Return every call of a log that can be read, by execution."""
    with CallLog(path) as log:
        names = dict.fromkeys((*(record.execution for record in log.executions()), *log.unfinished()))
        return {name: list(log.calls(name)) for name in names}
