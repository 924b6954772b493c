"""The results folder: whole files, one writer, clear refusals."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from report_journal import HEADER, hand_journal

from gyre.atomic import write_atomic
from gyre.cli.report import report
from gyre.errors import InputError
from gyre.journal import Header, to_line
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
    with ResultsFolder.create(tmp_path, {"steps": 2}) as folder:
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
        "import os, sys; from pathlib import Path; from gyre.report.lock import FolderLock\n"
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
    assert "hours" in CliRunner().invoke(report, [str(tmp_path)]).stdout
