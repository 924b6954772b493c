"""Importers on damaged files: whatever is wrong, the result is valid or the refusal is one clear line."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.errors import InputError
from gyre.workload import validate
from gyre.workload.compile import compile_program
from gyre.workload.importers import FORMATS, import_trace

DATA = Path(__file__).parent / "data"
NONSENSE: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 3.5, 1e300, float("nan"), "", "x", [], {}, [1], [None], {"a": 1}, [[]]]
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value inside a JSON value."""
    stack = [value]
    while stack:
        container = stack.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            yield container, key
            if isinstance(container[key], dict | list):
                stack.append(container[key])


def damaged(data: st.DataObject, value: Any) -> None:
    """Replace up to three values, at any depth, by nonsense."""
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(value))
        if found:
            container, key = found[data.draw(st.integers(0, len(found) - 1))]
            container[key] = copy.deepcopy(data.draw(NONSENSE))


def imported_or_refused(path: Path, known: str) -> None:
    for importer in FORMATS.values():
        importer.detect(path)
    try:
        trace, _ = import_trace(path, known)
    except InputError as error:
        refusal = str(error)
    else:
        assert validate(trace).ok
        assert compile_program(trace).calls == len(trace.calls)
        return
    assert "\n" not in refusal


DOCUMENTS = {
    "kv_cache_tester/session.json": "kv-cache-tester",
    "atif/trajectory.json": "atif",
    "atif_embedded.json": "atif",
}
LINES = {
    "claude_code/transcript.jsonl": "claude-code",
    "mooncake.jsonl": "mooncake",
    "lengths.jsonl": "lengths",
}


@pytest.mark.parametrize("name", DOCUMENTS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_damaged_document(name: str, data: st.DataObject) -> None:
    document = json.loads((DATA / name).read_text())
    damaged(data, document)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text(json.dumps(document))
        imported_or_refused(path, DOCUMENTS[name])


@pytest.mark.parametrize("name", LINES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_damaged_lines(name: str, data: st.DataObject) -> None:
    records = []
    for line in (DATA / name).read_text().splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    damaged(data, records)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_text("\n".join(json.dumps(record) for record in records))
        imported_or_refused(path, LINES[name])


@pytest.mark.parametrize("name", [*DOCUMENTS, *LINES, "azure.csv", "lengths.csv"])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_truncated_file(name: str, data: st.DataObject) -> None:
    content = (DATA / name).read_bytes()
    known = {**DOCUMENTS, **LINES, "azure.csv": "azure", "lengths.csv": "lengths"}[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / Path(name).name
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        imported_or_refused(path, known)


def test_one_bad_file_of_a_folder_does_not_spoil_the_others(tmp_path: Path) -> None:
    good = (DATA / "kv_cache_tester" / "session.json").read_text()
    (tmp_path / "a.json").write_text(good)
    (tmp_path / "b.json").write_text(good[:200])
    trace, report = import_trace(tmp_path, "kv-cache-tester")
    assert len(trace.executions) == 1
    assert report.count("not_a_session") == 1
