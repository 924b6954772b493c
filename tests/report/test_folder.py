"""The results folder: whole files, one writer, clear refusals."""

from __future__ import annotations

import errno
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from report_journal import HEADER, hand_journal

from gyre import events as ev
from gyre.atomic import write_atomic
from gyre.cli.report import report
from gyre.errors import InputError
from gyre.folder_lock import FolderLock
from gyre.journal import Header, JournalError, from_line, to_line
from gyre.report import (
    Bound,
    ResultsFolder,
    RunResult,
    compare_runs,
    finished_run,
    open_results,
    read_run,
    record_run,
    summarize,
)
from gyre.report.journal_file import JournalReader, JournalWriter, whole_length
from gyre.report.results import TORN_LINE

SETTINGS = {"policy": "elastic", "seed": 7, "limits": {"timeout_s": None}, "list": [1, 2]}


PLAN = {"variants": {"b": {"steps": 2}, "a": {"steps": 2}}}


def write_comparison(path: Path, plan: dict[str, Any], seeds: Sequence[int]) -> None:
    """Runs of `b` and `a` as `gyre compare` leaves them."""
    runs = []
    with ResultsFolder.create(path, plan) as folder:
        for seed, policy in itertools.product(seeds, ("b", "a")):
            with ResultsFolder.part(folder.run_path(policy, seed), {"policy": policy, "seed": seed}) as run:
                runs.append(write_run(run))
        folder.write_comparison(runs, compare_runs(runs))


def write_run(folder: ResultsFolder, *, entries: int | None = None) -> RunResult:
    journal = hand_journal()[:entries]
    writer = folder.open_journal()
    for entry in journal[1:]:
        assert not isinstance(entry, Header)
        writer.append(entry)
    record = record_run([Header(dict(folder.settings)), *journal[1:]])
    result = RunResult(record, summarize(record, bound=Bound(lower_bound_s=1.0, fraction=0.02, binding="GPU time")))
    folder.write_run(result)
    return result


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    with ResultsFolder.create(tmp_path / "out", SETTINGS) as folder:
        written = write_run(folder)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {"journal.jsonl", "settings.toml", "summary.json", "report.html", "timeline.json", "steps.parquet"}
    assert not any(name.startswith(".") for name in names), "neither lock nor temporary files stay"
    results = open_results(tmp_path / "out")
    assert results.comparison is None
    assert results.complete
    assert results.runs[0].summary == written.summary
    assert results.runs[0].record.groups.equals(written.record.groups)
    assert pl.read_parquet(tmp_path / "out" / "cells.parquet").equals(written.record.cells)
    assert tomllib.loads((tmp_path / "out" / "settings.toml").read_text()) == {
        "policy": "elastic",
        "seed": 7,
        "limits": {},
        "list": [1, 2],
    }


def test_a_comparison_comes_back_as_it_was(tmp_path: Path) -> None:
    runs = []
    with ResultsFolder.create(tmp_path, PLAN) as folder:
        for policy in ("b", "a"):
            with ResultsFolder.part(folder.run_path(policy, 7), {**SETTINGS, "policy": policy}) as run:
                runs.append(write_run(run))
        comparison = compare_runs(runs, published={"a": 1.2}, notes=["matched"])
        folder.write_comparison(runs, comparison)
    results = open_results(tmp_path)
    assert results.comparison == comparison
    assert pl.read_parquet(tmp_path / "steps.parquet")["policy"].to_list() == ["b", "b", "a", "a"]
    assert finished_run(tmp_path / "runs" / "a-seed7", {**SETTINGS, "policy": "a"}) is not None
    assert finished_run(tmp_path / "runs" / "a-seed7", SETTINGS) is None
    assert finished_run(tmp_path / "runs" / "c-seed7", SETTINGS) is None
    index = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [line.get("journal") for line in index[1:]] == ["runs/b-seed7/journal.jsonl", "runs/a-seed7/journal.jsonl"]


def test_a_stopped_run_leaves_a_readable_part(tmp_path: Path) -> None:
    with ResultsFolder.create(tmp_path, SETTINGS) as folder:
        write_run(folder, entries=35)
    assert json.loads((tmp_path / "summary.json").read_text())["complete"] is False
    assert not open_results(tmp_path).complete
    assert finished_run(tmp_path, SETTINGS) is None
    assert "not complete" in (tmp_path / "report.html").read_text()


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    with ResultsFolder.create(tmp_path, SETTINGS), pytest.raises(InputError, match=f"in use by process {os.getpid()}"):
        ResultsFolder.create(tmp_path, SETTINGS, resume=True)
    ResultsFolder.create(tmp_path, SETTINGS, resume=True).close()


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from gyre.folder_lock import FolderLock\n"
        "FolderLock(Path(sys.argv[1])); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert (tmp_path / ".lock").exists()
    ResultsFolder.create(tmp_path, SETTINGS).close()
    assert not (tmp_path / ".lock").exists()


def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    with ResultsFolder.create(tmp_path, SETTINGS) as folder:
        write_run(folder)
    with pytest.raises(InputError, match="--resume"):
        ResultsFolder.create(tmp_path, SETTINGS)
    with pytest.raises(InputError, match="other settings"):
        ResultsFolder.create(tmp_path, {**SETTINGS, "seed": 8}, resume=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(InputError, match="no results of gyre"):
        ResultsFolder.create(other, SETTINGS)
    assert [path.name for path in other.iterdir()] == ["thesis.tex"]
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        ResultsFolder.create(tmp_path / "file", SETTINGS)
    with pytest.raises(InputError, match=r"settings\.toml"):
        open_results(tmp_path / "nowhere")


def test_a_torn_last_line_is_left_out_and_reported(tmp_path: Path) -> None:
    with ResultsFolder.create(tmp_path, SETTINGS) as folder:
        write_run(folder)
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    reader = JournalReader(path)
    entries = list(reader)
    assert reader.torn_line == len(hand_journal())
    assert len(entries) == len(hand_journal()) - 1
    assert read_run(tmp_path).summary.problems == {TORN_LINE: 1}
    with JournalWriter(path, HEADER, append=True) as writer:
        writer.append(hand_journal()[-1])  # type: ignore[arg-type]
    assert path.read_bytes() == whole


def test_a_line_cut_within_a_letter_is_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = HEADER.to_line() + "\n" + to_line(ev.ExecutionLost(1.0, 0, "Gerät fort"))
    path.write_bytes(lines.encode()[: lines.encode().index("ä".encode()) + 1])
    reader = JournalReader(path)
    assert list(reader) == [HEADER]
    assert reader.torn_line == 2


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(HEADER.to_line() + "\nnot json\n" + to_line(hand_journal()[1]) + "\n")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"journal\.jsonl: line 2"):
        list(JournalReader(path))
    with pytest.raises(InputError, match="cannot be read"):
        list(JournalReader(tmp_path / "absent"))


@pytest.mark.parametrize("text", [b"", b"x", b"\n", b"ab\ncd", b"ab\ncd\n", b"\n" + b"x" * 200_000])
def test_length_of_whole_lines(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(text)
    assert whole_length(path) == text.rfind(b"\n") + 1


def test_a_failed_write_leaves_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("before")

    def full(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match="No space left on device") as caught:
        write_atomic(path, full)
    assert "\n" not in str(caught.value)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_while_a_table_is_written(tmp_path: Path) -> None:
    """polars tells of it by an error of its own, which ended a run with its traceback."""
    with ResultsFolder.create(tmp_path, SETTINGS) as folder:
        result = write_run(folder)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
        try:
            with pytest.raises(InputError, match=r"\.parquet: cannot be written .*; free space there") as caught:
                folder.write_run(result)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "\n" not in str(caught.value)
        assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")]
        folder.write_run(result)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_while_the_journal_grows() -> None:
    with pytest.raises(InputError, match="No space left on device"):
        JournalWriter(Path("/dev/full"), HEADER)


def test_report_draws_again_the_same(tmp_path: Path) -> None:
    with ResultsFolder.create(tmp_path, SETTINGS) as folder:
        write_run(folder)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("report.html", "timeline.json", "summary.json", "steps.parquet"):
        if name != "summary.json":
            (tmp_path / name).unlink()
    found = CliRunner().invoke(report, [str(tmp_path), "--json"])
    assert found.exit_code == 0
    assert found.stdout.encode() == before["summary.json"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert "seconds" in CliRunner().invoke(report, [str(tmp_path)]).stdout, "the run took 50 s"


def test_a_damaged_journal_is_told_of(tmp_path: Path) -> None:
    write_comparison(tmp_path, PLAN, [0])
    path = tmp_path / "runs" / "a-seed0" / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], lines[3], *lines[4:]])[:-9])  # a line twice, and the end cut off
    found = CliRunner().invoke(report, [str(tmp_path)])
    assert found.exit_code == 0
    (line,) = found.stderr.splitlines()
    assert line == f"warning: {path}: 1 × group dispatched twice, 1 × {TORN_LINE}; the figures leave that out"
    notes = open_results(tmp_path).comparison.all_notes  # type: ignore[union-attr]
    said = f"a, seed 0: its journal is damaged (1 × group dispatched twice, 1 × {TORN_LINE})"
    assert any(note.startswith(said) for note in notes)
    assert said in (tmp_path / "report.html").read_text()
    again = open_results(tmp_path).comparison
    assert again is not None
    assert again.all_notes == notes, "notes do not pile up"


def test_a_stopped_run_has_no_fraction_of_a_bound(tmp_path: Path) -> None:
    with ResultsFolder.create(tmp_path, SETTINGS) as folder:
        write_run(folder)
    assert read_run(tmp_path).summary.bound is not None
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:40]))
    assert read_run(tmp_path).summary.bound is None


def test_a_killed_comparison_has_the_order_of_its_settings(tmp_path: Path) -> None:
    write_comparison(tmp_path, {"seeds": 2, **PLAN}, [0, 1])
    (tmp_path / "summary.json").unlink()
    for policy, seed in itertools.product("ab", (0, 1)):
        (tmp_path / "runs" / f"{policy}-seed{seed}" / "summary.json").unlink()
    (tmp_path / "runs" / "b-seed0" / "journal.jsonl").unlink()
    cut = tmp_path / "runs" / "a-seed1" / "journal.jsonl"
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:40]))
    found = open_results(tmp_path).comparison
    assert found is not None
    assert [row.policy for row in found.policies] == ["b", "a"]
    assert (found.baseline, found.complete) == ("b", False)
    assert [(run.policy, run.seed) for run in found.runs] == [("a", 0), ("b", 1), ("a", 1)]
    assert found.all_notes == ["b, seed 0: no journal.", "a, seed 1: not complete, 0 steps done."]
    (tmp_path / "runs" / "b-seed1" / "journal.jsonl").unlink()
    rest = open_results(tmp_path).comparison
    assert rest is not None
    assert rest.baseline == "a"


def test_a_comparison_whose_runs_are_gone_is_refused(tmp_path: Path) -> None:
    write_comparison(tmp_path, PLAN, [0])
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(InputError, match="a comparison without a journal"):
        open_results(tmp_path)


def test_an_empty_journal_is_no_run(tmp_path: Path) -> None:
    with ResultsFolder.create(tmp_path, SETTINGS) as folder:
        write_run(folder)
    for text in ("", '{"journal":1,"sett'):
        (tmp_path / "journal.jsonl").write_text(text)
        with pytest.raises(InputError, match="empty journal"):
            read_run(tmp_path)
        assert finished_run(tmp_path, SETTINGS) is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"event":"CellFailed","time_s":NaN,"cell":1}', "time_s is nan"),
        ('{"event":"CellFailed","time_s":1e999,"cell":1}', "time_s is inf"),
        ('{"event":"CellFailed","time_s":-1.0,"cell":1}', "time_s is -1.0"),
        ('{"event":"CellFailed","time_s":1.0,"cell":1,"colour":2}', "unknown key colour"),
        ('{"event":"CellFailed","command":"StopRun","time_s":1.0,"cell":1}', "unknown key command"),
        ('{"journal":1,"settings":{},"colour":2}', "unknown key colour"),
        ('{"event":"CellFailed","time_s":1.0}', "KeyError"),
    ],
)
def test_lines_that_are_no_entries(line: str, said: str) -> None:
    with pytest.raises(JournalError, match=f"line 3: .*{said}"):
        from_line(line, 3)


def test_a_folder_that_refuses_everything_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        write_atomic(tmp_path / "file", refuse)
    FolderLock(tmp_path).release()
    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        FolderLock(tmp_path)
