"""The folder of a run as a trace: what was rolled out comes back, and what is missing is said."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from polars.testing import assert_frame_equal
from recorded_runs import record_run, small_workload
from test_calibration import run_settings, true_hardware
from toy_runs import simulate

from gyre.cli import main
from gyre.commands import CancelExecution
from gyre.errors import InputError
from gyre.events import ExecutionFinished, ExecutionLost, ExecutionScored
from gyre.journal import Entry, Header
from gyre.report.journal_file import JournalWriter
from gyre.sim.calibration import calibrate
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.call_log import CallLog, CallLogWriter
from gyre.workload.compile import compile_program
from gyre.workload.importers import import_trace
from gyre.workload.trace import Trace


def gyre(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recorded run of async."""
    record_run(tmp_path / "run", run_settings("async", steps=4), small_workload(12, 4), true_hardware(), monkeypatch)
    return tmp_path / "run"


def by_execution(trace: Trace, kept: pl.Series) -> dict[str, pl.DataFrame]:
    """Tables of some executions, in the order of their names."""
    keep = pl.col("execution_id").is_in(kept.implode())
    return {
        "executions": trace.executions.filter(keep).sort("execution_id"),
        "calls": trace.calls.filter(keep).sort("execution_id", "call_index"),
    }


def test_what_was_rolled_out_comes_back(run: Path) -> None:
    """Tokens and prefixes as they were, waits as they were, set-up and scoring within the precision of the clock."""
    trace, report = import_trace(run)
    workload = small_workload(12, 4)
    scored = trace.executions.filter(pl.col("score_status") == "scored")["execution_id"]
    assert len(scored) > 20
    back, sent = by_execution(trace, scored), by_execution(workload, scored)
    columns = ["execution_id", "call_index", "input_tokens", "output_tokens", "prefix_tokens", "relation", "wait_s"]
    assert_frame_equal(back["calls"].select(columns), sent["calls"].select(columns), abs_tol=2e-6)
    columns = ["execution_id", "group_id", "setup_s", "scoring_s", "reward", "outcome"]
    assert_frame_equal(back["executions"].select(columns), sent["executions"].select(columns), abs_tol=2e-6)
    assert report.count("not_ended") + len(trace.executions) == len(
        {entry for line in (run / "journal.jsonl").read_text().splitlines() for entry in _started(json.loads(line))}
    )


def _started(line: dict[str, object]) -> list[object]:
    return [line["execution"]] if line.get("command") == "StartExecution" else []


def test_groups_are_the_runs_in_the_order_of_dispatch(run: Path) -> None:
    trace, _ = import_trace(run)
    numbers = [int(group) for group in trace.groups["group_id"]]
    assert numbers == sorted(numbers)
    assert trace.groups["task"].unique().to_list() == ["a task"]


def lose_and_cancel(entries: list[Entry]) -> list[Entry]:
    """Execution 1 is lost in place of its end, 2 is cancelled; no evaluation of 3 was valid."""
    changed: list[Entry] = []
    for entry in entries:
        if isinstance(entry, ExecutionFinished) and entry.execution == 1:
            changed.append(ExecutionLost(entry.time_s, 1, "the host died"))
        elif isinstance(entry, ExecutionFinished) and entry.execution == 2:
            changed.append(CancelExecution(entry.time_s, 2, "not needed"))
        elif isinstance(entry, ExecutionScored) and entry.execution in (1, 2):
            continue
        elif isinstance(entry, ExecutionScored) and entry.execution == 3:
            changed.append(dataclasses.replace(entry, valid=False, score=None, sample_tokens=()))
        else:
            changed.append(entry)
    return changed


def test_what_did_not_end_is_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, workload = run_settings("async", steps=4), small_workload(12, 4)
    record_run(tmp_path / "run", settings, workload, true_hardware(), monkeypatch, change=lose_and_cancel)
    trace, report = import_trace(tmp_path / "run")
    names = trace.executions["execution_id"].to_list()
    assert "1-0" not in names
    assert "2-0" not in names
    assert (report.count("lost"), report.count("cancelled")) == (1, 1)
    failed = trace.executions.filter(pl.col("execution_id") == "3-0").row(0, named=True)
    assert (failed["outcome"], failed["score_status"], failed["reward"]) == ("score_failed", "failed", None)


def change_calls(run: Path, change: Callable[[CallRecord], CallRecord | None]) -> None:
    """Write the log of calls again, each call changed, or left out for None."""
    path = run / "calls" / "proxy.calls"
    with CallLog(path) as log:
        records = list(log.executions())
        calls = [call for record in records for call in log.calls(record.execution)]
    path.unlink()
    with CallLogWriter(path) as writer:
        for call in calls:
            if (changed := change(call)) is not None:
                writer.append(changed)
        for record in records:
            writer.append_execution(record)


def test_a_call_that_cannot_be_used_is_part_of_the_next_wait(run: Path) -> None:
    """It was given up: the harness went on with what it had before."""
    before, _ = import_trace(run)
    change_calls(run, lambda call: dataclasses.replace(call, delivered=call.call_id != "call-1"))
    trace, report = import_trace(run)
    assert report.count("not_delivered") == len(before.executions)
    own = trace.calls.filter(pl.col("execution_id") == "0-0")
    then = before.calls.filter(pl.col("execution_id") == "0-0")
    assert len(own) == len(then) - 1
    assert own["prefix_tokens"][1] == then["input_tokens"][0] + then["output_tokens"][0]
    given_up_s = then["wait_s"][1] + then["model_s"][1] + then["wait_s"][2]
    assert own["wait_s"][1] == pytest.approx(given_up_s, abs=1e-5)


def test_retries_branches_and_sub_agents_are_told_apart(run: Path) -> None:
    """A retry repeats an input, a branch leaves a context, a sub-agent has a thread of its own."""

    def changed(call: CallRecord) -> CallRecord:
        if call.call_id == "call-2":
            return dataclasses.replace(call, thread="helper", parent_thread="main", role=None)
        return dataclasses.replace(call, thread="main", role=None)

    change_calls(run, changed)
    trace, _ = import_trace(run)
    calls = trace.calls.filter(pl.col("execution_id") == "0-0")
    assert calls["thread"].to_list() == [0, 0, 1, 0]
    assert calls["parent_thread"].to_list() == [None, None, 0, None]
    assert compile_program(trace).calls == len(trace.calls)


def test_a_log_without_times_of_tokens_is_a_trace_but_measures_nothing(run: Path) -> None:
    def as_once(call: CallRecord) -> CallRecord:
        return dataclasses.replace(call, queued_s=np.nan, first_s=np.nan, cached_tokens=-1, placements=())

    before, _ = import_trace(run)
    change_calls(run, as_once)
    after, _ = import_trace(run)
    assert_frame_equal(before.calls.drop("cached_tokens"), after.calls.drop("cached_tokens"))
    with pytest.raises(InputError, match=r"do not say which engine they ran on.* record a run with this one"):
        calibrate(run)


def test_a_reply_of_two_engines_is_no_measure(run: Path) -> None:
    """What is measured comes from replies that one engine gave from end to end."""

    def moved(call: CallRecord) -> CallRecord:
        first, places = call.placements[0], call.placements
        again = dataclasses.replace(first, engine="http://other", at_s=call.first_s, tokens=1)
        return dataclasses.replace(call, placements=(*places, again), finish=Finish.STOP)

    change_calls(run, moved)
    with pytest.raises(InputError, match="holds no reply of two tokens or more that one engine gave"):
        calibrate(run)


def header_only(path: Path, entries: list[Entry], settings: dict[str, object]) -> None:
    path.mkdir()
    with JournalWriter(path / "journal.jsonl", Header(settings)) as journal:
        for entry in entries:
            journal.append(entry)


def test_folders_of_other_kinds_are_refused(tmp_path: Path) -> None:
    settings = run_settings("async", steps=2)
    entries = simulate(settings, compile_program(small_workload(6, 4)), true_hardware())
    header_only(tmp_path / "simulated", entries, settings.model_dump(mode="json"))
    header_only(tmp_path / "no_calls", entries, {"policy": "async"})
    header_only(tmp_path / "comparison", [], {"variants": {}})
    header_only(tmp_path / "no_cells", [], {})
    (tmp_path / "empty").mkdir()
    for name, says in {
        "simulated": "a simulated run, whose folder has a journal but no calls",
        "no_calls": "holds a journal but no log of calls",
        "comparison": "a comparison's folder",
        "no_cells": "its cells never came up",
        "empty": "holds no journal.jsonl",
        "nowhere": "no such folder",
    }.items():
        result = gyre("calibrate", tmp_path / name)
        assert result.exit_code == 2, name
        assert says in result.stderr, name
        assert result.stderr.count("\n") == 1, name
        assert gyre("simulate", "--trace", tmp_path / name).exit_code == 2, name


def test_damage_is_told_of(run: Path) -> None:
    """A torn journal and a damaged log are read as far as they go."""
    journal = run / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-7])
    log = run / "calls" / "proxy.calls"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    trace, report = import_trace(run)
    assert len(trace.executions) > 10
    assert report.count("torn") == 1
    assert report.count("damaged") + report.count("unreadable") >= 1
    calibrate(run)


def test_a_damaged_line_within_a_journal_is_named_once(run: Path) -> None:
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:5], b"damaged\n", *lines[5:]]))
    result = gyre("calibrate", run)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"gyre: {journal}: line 6: not a journal entry")
    assert "InputError" not in result.stderr


def test_commands_take_a_run(run: Path, tmp_path: Path) -> None:
    """Cells, sizes and policy are the run's where nothing else is said, and so is the hardware."""
    out = tmp_path / "profile.toml"
    result = gyre("calibrate", run, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["simulated_again"][0]["error"] == pytest.approx(0, abs=0.03)
    assert gyre("calibrate", run, "--out", out).exit_code == 2  # exists
    refused = gyre("calibrate", run, "--out", tmp_path / "none" / "profile.toml")
    assert (refused.exit_code, "(no such folder); make it" in refused.stderr) == (2, True)
    shown = gyre("simulate", "--trace", run, "--policy", "async", "--dry-run").stdout
    assert 'order = "trace"' in shown
    assert "groups_per_step = 2" in shown
    assert "capacity = 8" in shown
    simulated = gyre("simulate", "--trace", run, "--policy", "async", "--hardware", out, "--json")
    assert simulated.exit_code == 0, simulated.output
    comparison = gyre("compare", "--trace", run, "--json", "--jobs", 1)
    assert comparison.exit_code == 0, comparison.output
    assert [row["policy"] for row in json.loads(comparison.stdout)["policies"]] == ["colocate", "async", "elastic"]
    table = gyre("calibrate", run)
    assert table.exit_code == 0
    assert "wall time" in table.stdout
