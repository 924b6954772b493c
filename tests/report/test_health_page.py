"""Health in the report: figures that Plotly takes, nothing drawn of what there is no data for, executions to read."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pytest
from page_reading import Links, painted
from report_journal import hand_journal
from report_toy import Toy, toy_journal
from watch_journals import CELLS, Plan, planned_journal

from gyre import commands as cmd
from gyre import events as ev
from gyre.journal import Entry, Header
from gyre.report import RunResult, compare_runs, record_run, summarize
from gyre.report.health_figure import health_figure
from gyre.report.health_tables import reading_html
from gyre.report.page import report_figures, report_page
from gyre.report.reading_sample import reading_sample
from gyre.report.rules_figures import checks_figure
from gyre.report.theme import palette


def result(plan: Plan) -> RunResult:
    record = record_run(planned_journal(plan))
    return RunResult(record, summarize(record))


@pytest.fixture(scope="module")
def full() -> RunResult:
    plan = Plan(
        steps=14,
        kl=lambda step: 0.3,
        valid=lambda step: 0.9,
        checks={f"<b>{index}": lambda step: 0.1 * step % 1.0 for index in range(10)} | {"process:x": lambda step: 0.5},
    )
    return result(plan)


def titles(figure: Any) -> list[str]:
    return [note["text"] for note in figure.layout["annotations"]]


def test_all_figures_are_valid_plotly(full: RunResult) -> None:
    for runs in ([full], [full, result(Plan(steps=6))]):
        figures = report_figures(runs, compare_runs(runs) if len(runs) > 1 else None)
        for figure in figures:
            go.Figure(data=painted(figure.data, palette(True)), layout=painted(figure.layout, palette(True)))
        assert {"health"} <= {figure.key for figure in figures}
    assert {"checks", "alike", "selection"} <= {figure.key for figure in report_figures([full], None)}


def test_panels_without_data_are_left_out(full: RunResult) -> None:
    figure = health_figure([full])
    assert figure is not None
    assert "<b>kl</b>" in titles(figure)
    assert "<b>evaluations that failed, %</b>" in titles(figure)
    bare = health_figure([result(Plan(steps=4, tool_calls=lambda step: 0.0))])
    assert bare is not None
    assert not {"<b>kl</b>", "<b>tool calls an execution</b>", "<b>evaluations that failed, %</b>"} & set(titles(bare))
    assert checks_figure([result(Plan(steps=4))]) is None
    begun = record_run(hand_journal()[:10])
    assert health_figure([RunResult(begun, summarize(begun))]) is None


def test_an_alert_is_listed_and_shaded(full: RunResult) -> None:
    figure = health_figure([full])
    assert figure is not None
    assert len(figure.layout["shapes"]) == len(full.record.health.alerts) >= 1
    page = report_page([full], None, {})
    assert "Alerts: " in page
    links = Links()
    links.feed(page)
    assert [link for link in links.fetched if not link.startswith("data:")] == []
    assert "<b>3" not in page.split('id="figure-data"')[0], "names of checks are escaped"


def test_the_sample_to_read_depends_on_seed_and_step_alone() -> None:
    record = record_run(toy_journal(Toy(steps=5)))
    part = record_run(entry for entry in toy_journal(Toy(steps=5)) if entry_before(entry, record.steps["updated_s"][2]))
    chosen = reading_sample(record, 3)
    assert chosen == reading_sample(record, 3)
    assert [one for one in chosen if one.step < 3] == reading_sample(part, 3)
    assert chosen != reading_sample(record, 4)
    by_step = {step: [one for one in chosen if one.step == step] for step in range(5)}
    for step, ones in by_step.items():
        assert [one.why for one in ones] == ["best", "worst", "median", "longest", "random"], step
        assert len({one.execution for one in ones}) == 5
        scores = {one.why: one.score for one in ones}
        of_step = record.groups.filter(record.groups["version_trained"] == step)["group"]
        whole = record.executions.filter(record.executions["group"].is_in(of_step.implode()))["score"]
        assert (scores["best"], scores["worst"]) == (whole.max(), whole.min())


def entry_before(entry: Header | Entry, time_s: float) -> bool:
    return isinstance(entry, Header) or entry.time_s <= time_s


def test_failed_checks_and_links_stand_in_the_list(full: RunResult) -> None:
    chosen = reading_sample(full.record)
    html = reading_html(chosen, {chosen[-1].execution: "read/x.html"})
    assert 'href="read/x.html"' in html
    assert "&lt;b&gt;" in html
    assert "Earlier steps (11)" in html


def added_and_resumed() -> list[Header | Entry]:
    """A member is lost and replaced; the machine dies after the update and in the middle of a scoring."""
    scored = [ev.ExecutionScored(9.0, execution, True, 1.0, (10,)) for execution in (0, 2)]
    return [
        Header({}),
        ev.RunStarted(0.0, CELLS),
        cmd.DispatchGroup(0.0, 0, 0, (0, 1), 5),
        cmd.DispatchGroup(0.0, 1, 0, (3,), 6),
        *(cmd.StartExecution(0.0, execution) for execution in (0, 1, 3)),
        *(ev.ExecutionStarted(1.0, execution, 0) for execution in (0, 1, 3)),
        ev.ExecutionLost(3.0, 1, "host died"),
        cmd.AddExecutions(3.0, 0, (2,)),
        cmd.StartExecution(3.0, 2),
        ev.ExecutionStarted(4.0, 2, 0),
        *(ev.ExecutionFinished(8.0, execution, "completed", ((0, 10),), 2) for execution in (0, 2)),
        *(cmd.ScoreExecution(8.0, execution, 0) for execution in (0, 2)),
        *scored,
        cmd.OpenStep(9.0, 0),
        cmd.OfferMicroSteps(9.0, 0, 0, 0, 0, ((10,),)),
        ev.UpdateApplied(10.0, 1),
        ev.RunResumed(20.0, 0, CELLS),
        cmd.StartExecution(20.0, 3),
        cmd.OpenStep(20.0, 0),
        cmd.OfferMicroSteps(20.0, 0, 0, 0, 0, ((10,),)),
        ev.ExecutionStarted(21.0, 3, 0),
        ev.UpdateApplied(22.0, 1),
        cmd.StopRun(22.0, 1),
    ]


def test_added_executions_and_a_resumed_run_are_in_the_tables() -> None:
    record = record_run(added_and_resumed())
    assert record.problems == {}
    assert record.groups["executions"].to_list() == [3, 1]
    assert record.groups["task"].to_list() == [5, 6]
    assert record.groups["consumed_s"].to_list() == [22.0, None]
    assert record.steps["updated_s"].to_list() == [22.0]
    executions = record.executions.sort("execution")  # the table has them in the order of their dispatch
    assert executions["ended_s"].to_list() == [8.0, 3.0, 8.0, None]
    assert executions["tool_calls"].to_list() == [2, None, 2, None]
    assert record.health.flow.dispatched == summarize(record).executions.dispatched == 4
