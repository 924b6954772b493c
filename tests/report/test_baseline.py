"""A run against its baseline, task by task."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from watch_journals import Plan, planned_journal

from gyre.cli.report import report
from gyre.errors import InputError
from gyre.journal import Header
from gyre.report import ResultsFolder, RunRecord, RunResult, record_run, summarize
from gyre.report.baseline import compare_with_baseline
from gyre.trajectory import CallLogWriter, CallRecord


def run(plan: Plan) -> RunRecord:
    return record_run(planned_journal(plan))


def test_differences_are_found_and_their_intervals_hold_them() -> None:
    own = run(Plan(steps=12, tasks=48, score=lambda step: 0.6, tool_calls=lambda step: 30.0, completion=lambda _: 0.5))
    base = run(
        Plan(steps=6, tasks=48, seed=9, score=lambda step: 0.4, tool_calls=lambda step: 20.0, completion=lambda _: 0.5)
    )
    found = compare_with_baseline(own, base)
    assert (found.tasks, found.only_here, found.only_baseline) == (48, 0, 0)
    whole = {row.figure: row for row in found.whole}
    for figure, true in (("mean score", 0.2), ("tool calls", 10.0), ("completion rate", 0.0)):
        row = whole[figure]
        assert row.low is not None
        assert row.high is not None
        assert row.low <= true <= row.high
        assert row.difference == pytest.approx(row.own - row.baseline)
    assert "trained itself" in found.notes[0]


def test_late_steps_show_what_the_run_came_to() -> None:
    own = run(Plan(steps=30, tasks=16, score=lambda step: 0.2 + 0.02 * step))
    found = compare_with_baseline(own, run(Plan(steps=2, tasks=16, seed=1, score=lambda step: 0.2)))
    whole, late = (next(row for row in rows if row.figure == "mean score") for rows in (found.whole, found.late))
    assert late.difference == pytest.approx(0.5, abs=0.12)
    assert whole.difference == pytest.approx(0.29, abs=0.12)


def test_pairs_are_tasks_and_what_has_no_pair_is_counted() -> None:
    """The difference is a mean over tasks: a task with many executions weighs no more than one with few."""
    own, base = run(Plan(steps=3, groups=8, tasks=20)), run(Plan(steps=1, groups=8, tasks=20, seed=2))
    found = compare_with_baseline(own, base)
    assert (found.tasks, found.only_here, found.only_baseline) == (8, 12, 0)

    def by_task(record: RunRecord) -> dict[int, float]:
        rows = record.executions.join(record.groups.select("group", "task"), on="group").rows(named=True)
        tasks = {row["task"] for row in rows}
        return {task: np.mean([row["score"] for row in rows if row["task"] == task]).item() for task in tasks}

    here, there = by_task(own), by_task(base)
    expected = np.mean([here[task] - there[task] for task in there])
    assert next(row for row in found.whole if row.figure == "mean score").difference == pytest.approx(expected)


def test_journals_that_name_no_tasks_are_refused() -> None:
    entries = list(planned_journal(Plan(steps=2)))
    old = record_run([Header({}, version=1), *entries[1:]])
    with pytest.raises(InputError, match="names no tasks"):
        compare_with_baseline(old, run(Plan(steps=2)))


def leave(path: Path, plan: Plan) -> None:
    entries = list(planned_journal(plan))
    assert isinstance(entries[0], Header)
    with ResultsFolder.create(path, entries[0].settings) as folder:
        writer = folder.open_journal()
        for entry in entries[1:]:
            assert not isinstance(entry, Header)
            writer.append(entry)
        record = record_run(entries)
        folder.write_run(RunResult(record, summarize(record)), report=False)


def test_the_command_shows_baseline_and_alerts(tmp_path: Path) -> None:
    leave(tmp_path / "own", Plan(steps=12, kl=lambda step: 0.5))
    leave(tmp_path / "base", Plan(steps=4, seed=4))
    told = CliRunner().invoke(report, [str(tmp_path / "own"), "--baseline", str(tmp_path / "base")])
    assert told.exit_code == 0, told.output
    assert "kl high" in told.output
    assert "against the baseline, 64 tasks" in told.output
    page = (tmp_path / "own" / "report.html").read_text()
    assert page.index("Alerts: 1") < page.index("Health of the training") < page.index("Against the baseline")
    assert len((tmp_path / "own" / "metrics.jsonl").read_text().splitlines()) == 12
    assert json.loads((tmp_path / "own" / "alerts.jsonl").read_text())["name"] == "kl_high"
    asked = CliRunner().invoke(report, [str(tmp_path / "own"), "--baseline", str(tmp_path / "base"), "--json"])
    assert {"summary", "baseline", "selection", "to_read"} <= json.loads(asked.stdout).keys()


def test_thresholds_can_be_given_afterwards(tmp_path: Path) -> None:
    leave(tmp_path / "own", Plan(steps=8, kl=lambda step: 0.5))
    (tmp_path / "watch.toml").write_text("[watch]\nkl_high = 1.0\n")
    told = CliRunner().invoke(report, [str(tmp_path / "own"), "--watch", str(tmp_path / "watch.toml")])
    assert told.exit_code == 0, told.output
    assert (tmp_path / "own" / "alerts.jsonl").read_text() == ""


def test_calls_that_lack_the_executions_are_said(tmp_path: Path) -> None:
    leave(tmp_path / "own", Plan(steps=2))
    refused = CliRunner().invoke(report, [str(tmp_path / "own"), "--calls", str(tmp_path / "none.calls")])
    assert isinstance(refused.exception, InputError)
    refused = CliRunner().invoke(report, [str(tmp_path / "own"), "--calls", "x", "--calls-name", "{thread}"])
    assert isinstance(refused.exception, InputError)


def test_executions_to_read_get_pages_from_their_recorded_calls(tmp_path: Path) -> None:
    leave(tmp_path / "own", Plan(steps=2))
    first = CliRunner().invoke(report, [str(tmp_path / "own"), "--calls", str(tmp_path), "--json"])
    assert "no recorded calls" in first.stderr or "First: " in first.stderr
    chosen = [one["execution"] for one in json.loads(first.stdout)["to_read"]]
    with CallLogWriter(tmp_path / "own.calls") as log:
        for execution in chosen[:-1]:  # the last was not recorded
            words = np.arange(5, dtype=np.int32)
            log.append(CallRecord(f"run-{execution}", "c", 0, words, words, np.zeros(5, np.float32)))
    calls = ["--calls", str(tmp_path / "own.calls"), "--calls-name", "run-{execution}"]
    told = CliRunner().invoke(report, [str(tmp_path / "own"), *calls])
    assert told.exit_code == 0, told.output
    assert f"1 of {len(chosen)} executions to read are not there" in told.stderr
    pages = {path.name for path in (tmp_path / "own" / "read").iterdir()}
    assert pages == {f"{execution}.html" for execution in chosen[:-1]}
    page = (tmp_path / "own" / "report.html").read_text()
    assert all(f'href="read/{name}"' in page for name in pages)
    assert f'href="read/{chosen[-1]}.html"' not in page


@pytest.mark.parametrize("rate", [None, 0.3])
def test_checks_that_failed_have_a_column_where_there_are_any(tmp_path: Path, rate: float | None) -> None:
    leave(tmp_path / "own", Plan(steps=3, checks={} if rate is None else {"builds": lambda step: rate}))
    told = CliRunner().invoke(report, [str(tmp_path / "own")])
    assert told.exit_code == 0, told.output
    page = (tmp_path / "own" / "report.html").read_text()
    assert (">checks failed<" in page) == (rate is not None)
