"""Executions with trees to put into stores, random ones and fixed ones, and how to compare what comes back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gyre.role import Role
from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord, Finish, Media
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.store import TrajectoryStore
from gyre.trajectory.tree import Tree

Item = tuple[ExecutionRecord, Tree]


def call(execution: str, number: int, inputs: list[int], outputs: list[int], **fields: Any) -> CallRecord:
    """A call with made-up log-probabilities, of which some are 0."""
    ids = np.array(outputs, np.int32)
    return CallRecord(
        execution=execution,
        call_id=fields.pop("call_id", f"call-{number}"),
        sequence=number,
        input_ids=np.array(inputs, np.int32),
        output_ids=ids,
        logprobs=fields.pop("logprobs", -((ids % 7) * np.float32(0.3) + np.float32(number % 2) / 3).astype(np.float32)),
        versions=fields.pop("versions", None),
        **fields,
    )


def item(execution: str, group: str = "g", *, seed: int = 0, calls: int = 6, score: float | None = 1.0) -> Item:
    """A small execution: a conversation that goes on, now and then from an earlier point."""
    generator = np.random.default_rng([seed, *execution.encode()])
    history = generator.integers(0, 1000, 20).tolist()
    records = []
    for number in range(calls):
        outputs = generator.integers(0, 1000, int(generator.integers(1, 12))).tolist()
        versions = np.sort(generator.integers(0, 3, len(outputs))).astype(np.int32)
        records.append(call(execution, number, history, outputs, versions=versions, model="policy"))
        history = history + outputs + generator.integers(0, 1000, 5).tolist()
        if generator.random() < 0.3:
            history = history[: int(generator.integers(1, len(history)))]
    return ExecutionRecord(execution, group, score), build_tree(records, execution)


def big_item(execution: str, group: str = "g", *, tokens: int = 300_000) -> Item:
    """An execution of one call that is above the size under which executions share a part."""
    generator = np.random.default_rng([*execution.encode()])
    ids = generator.integers(0, 150_000, tokens, dtype=np.int32)
    sampled = tokens // 3
    logprobs = -generator.random(sampled, dtype=np.float32)
    record = CallRecord(execution, "only", 0, ids[sampled:], ids[:sampled], logprobs)
    return ExecutionRecord(execution, group, 0.5), build_tree([record])


def part_files(store: TrajectoryStore, execution: str) -> list[Path]:
    """The files with an execution's rows: nodes, then calls."""
    number = store.executions().filter(execution=execution)["part"].item()
    return [store.path / f"{table}-{number:06d}.parquet" for table in ("nodes", "calls")]


texts = st.text(max_size=8)
token_lists = st.lists(st.integers(0, 2), max_size=6)


@st.composite
def items(draw: st.DrawFn, execution: str = "x") -> Item:
    """Any execution: few distinct tokens, so that calls share prefixes; refused calls, media, several versions."""
    records = []
    for number in range(draw(st.integers(0, 7))):
        outputs = draw(token_lists)
        inputs = draw(token_lists)
        logprobs = draw(st.lists(st.floats(-50, 0, width=32), min_size=len(outputs), max_size=len(outputs)))
        versions = st.lists(st.integers(0, 2), min_size=len(outputs), max_size=len(outputs))
        position = draw(st.integers(0, 9))
        media = (Media(position, 1, draw(texts) or "d"),) if position < len(inputs) else ()
        records.append(
            call(
                execution,
                number,
                inputs,
                outputs,
                call_id=draw(texts) + str(number),
                logprobs=draw(st.sampled_from([None, np.array(logprobs, np.float32)])),
                versions=draw(st.none() | versions.map(lambda runs: np.array(runs, np.int32))),
                finish=draw(st.sampled_from(Finish)),
                role=draw(st.none() | st.sampled_from(Role)),
                thread=draw(texts),
                parent_thread=draw(texts),
                model=draw(texts),
                by_policy=draw(st.booleans()),
                start_s=draw(st.floats(0, 10)),
                media=media,
            )
        )
    record = ExecutionRecord(
        execution, draw(texts), draw(st.none() | st.floats(-1, 1)), draw(texts), draw(texts), draw(texts),
        draw(st.none() | st.floats(0, 1e6)),
    )  # fmt: skip
    return record, build_tree(records, execution, harness=draw(texts))


def assert_same(found: Item, expected: Item) -> None:
    """Every field of record and tree is equal, arrays in dtype and shape too."""
    assert found[0] == expected[0]
    _assert_same_fields(found[1], expected[1])


def _assert_same_fields(found: Any, expected: Any) -> None:
    for field in dataclasses.fields(expected):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        if dataclasses.is_dataclass(b):
            _assert_same_fields(a, b)
        elif isinstance(b, np.ndarray):
            assert a.dtype == b.dtype, field.name
            assert a.flags.writeable
            np.testing.assert_array_equal(a, b, err_msg=field.name)
        else:
            assert type(a) is type(b)
            assert a == b, field.name
