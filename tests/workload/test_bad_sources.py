"""Sources and profiles that would block, overflow or never end are refused in one line; nothing is half-written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_profile import small_profile

from gyre.errors import InputError
from gyre.toml_file import parse_toml, validated
from gyre.workload.compile import compile_program
from gyre.workload.findings import Places
from gyre.workload.importers import FORMATS, import_trace
from gyre.workload.load import repeated_groups
from gyre.workload.profiles import Profile, draws
from gyre.workload.profiles.generate import generate

DEEP = "[" * 100_000


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
@pytest.mark.parametrize("known", [None, *FORMATS])
def test_json_nested_too_deeply_is_refused(tmp_path: Path, name: str, known: str | None) -> None:
    (tmp_path / name).write_text(DEEP + "\n")
    with pytest.raises(InputError) as caught:
        import_trace(tmp_path / name, known)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value).replace(str(tmp_path), "")) < 500


def test_a_line_nested_too_deeply_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(DEEP + '\n{"group": "a", "tokens": 3}\n')
    trace, report = import_trace(tmp_path / "a.jsonl")
    assert len(trace.executions) == 1
    (finding,) = [one for one in report.findings if one.rule == "not_json"]
    assert finding.places is Places.FILE_LINES
    assert "(file lines 1)" in finding.line()


def test_toml_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        parse_toml("a = " + DEEP, "x.toml")


@pytest.mark.parametrize("known", [None, "lengths"])
def test_a_pipe_is_refused_without_being_read(tmp_path: Path, known: str | None) -> None:
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="neither a regular file nor a folder"):
            import_trace(source, known)


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("calls", {"median": 1e30}),
        ("calls", {"median": 1e7}),
        ("calls", {"cap": 1e9}),
        ("calls", {"sigma_group": 1e3}),
        ("calls", {"sigma_outlier": 1e3}),
        ("output_tokens", {"median": 1e15}),
        ("growth_tokens", {"sigma": 100.0}),
        ("tool_wait_s", {"median": 1e300}),
        ("setup_s", {"cap": 1e10}),
        ("training", {"group_size": 10**9}),
        ("nominal", {"decode_tokens_per_s": 1e-300}),
        ("sub_agents", {"width": 1e9}),
        ("compaction", {"threshold_tokens": 10**12}),
        ("reward", {"levels": 10**12}),
    ],
)
def test_a_size_out_of_bounds_is_named(table: str, values: dict[str, Any]) -> None:
    dumped = small_profile().model_dump(exclude_none=True)
    dumped[table] |= values
    (key,) = values
    with pytest.raises(InputError, match=rf"x: {table}\.{key}: must lie between"):
        validated(Profile, dumped, "x")


def test_the_widest_laws_that_are_allowed_stay_within_the_types() -> None:
    wild = {"median": 1e8, "sigma": 20.0, "sigma_group": 20.0}
    changes = {"input_tokens": wild, "growth_tokens": wild, "output_tokens": wild, "compaction": None}
    trace = generate(small_profile(**changes, calls={"median": 5.0}), groups=2, seed=0)
    assert trace.calls["output_tokens"].is_between(1, 10**8).all()
    assert (trace.calls["input_tokens"] >= 1).all()
    assert (trace.executions["sum_input_tokens"] >= 0).all()


def test_a_workload_of_too_many_calls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "MOST_TURNS", 50)
    with pytest.raises(InputError, match="more than 50 calls; draw fewer groups"):
        generate(small_profile(), groups=10, seed=0)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: pl.DataFrame, file: Path, **_: object) -> None:
        file.write_bytes(b"PAR1")
        raise pl.exceptions.ComputeError("No space left on device (os error 28)\nand more")

    trace = generate(small_profile(), groups=2, seed=0)
    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device") as caught:
        trace.write(tmp_path / "t")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("group_size", "repeated"), [(1, 0), (2, 1), (3, 2), (4, 3), (100, 3)])
def test_groups_too_small_for_the_run_are_counted(tmp_path: Path, group_size: int, repeated: int) -> None:
    (tmp_path / "a.csv").write_text("group,tokens\n" + "a,1\n" * 3 + "b,1\n" * 2 + "c,1\n")
    program = compile_program(import_trace(tmp_path / "a.csv")[0])
    assert repeated_groups(program, group_size) == repeated
    assert np.bincount(program.group).tolist() == [3, 2, 1]
