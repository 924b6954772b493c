"""The trace in memory and on disk."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_traces import call, trace_of

from gyre.errors import InputError
from gyre.workload import Trace
from gyre.workload.schema import NULLABLE, OPENTELEMETRY, TABLES


@pytest.fixture
def trace() -> Trace:
    return trace_of([call(0), call(1), call(0, execution_id="f")])


def equal(a: Trace, b: Trace) -> bool:
    return all(frame.equals(b.tables()[name]) for name, frame in a.tables().items())


def test_what_is_written_is_read_back(trace: Trace, tmp_path: Path) -> None:
    trace.write(tmp_path / "t")
    assert equal(Trace.read(tmp_path / "t"), trace)
    assert sorted(file.name for file in (tmp_path / "t").iterdir()) == [
        "calls.parquet",
        "executions.parquet",
        "groups.parquet",
        "tools.parquet",
    ]


def test_each_file_names_the_schema_version(trace: Trace, tmp_path: Path) -> None:
    trace.write(tmp_path / "t")
    for table in TABLES:
        assert pl.read_parquet_metadata(tmp_path / "t" / f"{table}.parquet")["gyre.schema_version"] == "1"


def test_an_older_trace_is_replaced_and_nothing_is_left_beside_it(trace: Trace, tmp_path: Path) -> None:
    trace_of([call(0)]).write(tmp_path / "t")
    trace.write(tmp_path / "t")
    assert equal(Trace.read(tmp_path / "t"), trace)
    assert [file.name for file in tmp_path.iterdir()] == ["t"]


def test_a_folder_that_is_no_trace_is_not_overwritten(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not a trace, so it is not overwritten"):
        trace.write(tmp_path / "t")
    assert (tmp_path / "t" / "thesis.tex").read_text() == "years of work"


def test_a_file_in_the_way_is_not_overwritten(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "t").write_text("data")
    with pytest.raises(InputError, match="not overwritten"):
        trace.write(tmp_path / "t")


def test_another_schema_version_is_refused(trace: Trace, tmp_path: Path) -> None:
    trace.write(tmp_path / "t")
    trace.calls.write_parquet(tmp_path / "t" / "calls.parquet", metadata={"gyre.schema_version": "7"})
    with pytest.raises(InputError, match=r"calls\.parquet: holds schema version 7, this gyre reads version 1"):
        Trace.read(tmp_path / "t")


def test_a_truncated_file_is_named(trace: Trace, tmp_path: Path) -> None:
    trace.write(tmp_path / "t")
    file = tmp_path / "t" / "calls.parquet"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=r"calls\.parquet: not a readable Parquet file") as caught:
        Trace.read(tmp_path / "t")
    assert "\n" not in str(caught.value)


def test_a_folder_without_the_files_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a trace folder .* `gyre trace import`"):
        Trace.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda calls: calls.with_columns(colour=pl.lit("red")), "calls: unknown column 'colour'; remove it"),
        (lambda calls: calls.drop("wait_s"), "calls: column 'wait_s' is missing; add it"),
        (lambda calls: calls.with_columns(wait_s=None), "column 'wait_s' is null in 3 rows"),
        (
            lambda calls: calls.with_columns(relation=pl.lit("cousin")),
            "column 'relation' holds 'cousin'; it must be Enum",
        ),
        (
            lambda calls: calls.with_columns(input_tokens=pl.lit("many")),
            "'input_tokens' holds 'many'; it must be Int64",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(trace: Trace, change: object, message: str) -> None:
    assert callable(change)
    with pytest.raises(InputError, match=message):
        Trace.from_frames(executions=trace.executions, calls=change(trace.calls))


def test_missing_nullable_columns_become_null(trace: Trace) -> None:
    lean = {name: frame.drop(NULLABLE[name]) for name, frame in trace.tables().items()}
    filled = Trace.from_frames(
        executions=lean["executions"], calls=lean["calls"], groups=lean["groups"], tools=lean["tools"]
    )
    for table, frame in filled.tables().items():
        assert frame.schema == trace.tables()[table].schema
        assert frame.select(NULLABLE[table]).null_count().sum_horizontal()[0] == len(frame) * len(NULLABLE[table])


@given(order=st.permutations(range(5)))
def test_calls_are_put_in_order(order: list[int]) -> None:
    ordered = trace_of([call(0), call(1), call(2), call(0, execution_id="f"), call(1, execution_id="f")])
    again = Trace.from_frames(executions=ordered.executions, calls=ordered.calls[order])
    assert again.calls.equals(ordered.calls)


def test_select_and_concat_count_groups_again(trace: Trace) -> None:
    first, second = (trace.select(pl.Series([name])) for name in ("e", "f"))
    assert first.groups["n_executions"].to_list() == [1]
    assert equal(Trace.concat([first, second]), trace)


def test_opentelemetry_names_refer_to_columns() -> None:
    for column in OPENTELEMETRY:
        table, name = column.split(".")
        assert name in TABLES[table]
