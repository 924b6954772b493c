"""The HTML report: valid figures, no network, every run drawn, colours that stay apart."""

from __future__ import annotations

import base64
import itertools
import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest
from colour_vision import DEFICIENCIES, lab
from page_reading import Links, painted
from report_journal import hand_journal
from report_toy import Toy, toy_journal

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellKind, CellSpec, CellState
from gyre.journal import Entry, Header
from gyre.report import Comparison, RunResult, compare_runs, record_run, summarize
from gyre.report.headline import _unbroken, title_of
from gyre.report.page import report_figures, report_page
from gyre.report.steps_figure import steps_figure
from gyre.report.theme import palette
from gyre.report.use import CellUse, GpuUse


@pytest.fixture(scope="module")
def runs() -> list[RunResult]:
    results = []
    for policy in ("async", "colocate", "elastic"):
        record = record_run(
            toy_journal(Toy(policy=policy, steps=4, loss_rate=0.05, cell_failures=((4000.0, 1, 900.0),)))
        )
        results.append(RunResult(record, summarize(record)))
    return results


@pytest.fixture(scope="module")
def comparison(runs: list[RunResult]) -> Comparison:
    return compare_runs(runs)


@pytest.mark.parametrize("several", [False, True])
def test_figures_are_valid_plotly(runs: list[RunResult], comparison: Comparison, several: bool) -> None:
    figures = report_figures(runs, comparison) if several else report_figures(runs[2:], None)
    assert len({figure.key for figure in figures}) == len(figures) == (9 if several else 11)
    for figure in figures:
        go.Figure(
            data=painted(figure.data, palette(False)), layout=painted(figure.layout, palette(False))
        )  # raises for an unknown property
        assert figure.reading
        assert "\n" not in figure.reading
        axes = [value for key, value in figure.layout.items() if key.startswith("xaxis")]
        assert any("title" in axis for axis in axes), f"{figure.key}: no unit on the time or share axis"


def test_the_page_needs_no_network(runs: list[RunResult], comparison: Comparison) -> None:
    page = report_page(runs, comparison, {"workload": {"profile": "nl2repo-122b"}})
    links = Links()
    links.feed(page)
    assert [link for link in links.fetched if not link.startswith("data:")] == []
    assert page.count("plotly.js v") <= 2, "Plotly is there once"
    assert len(page.encode()) < 8_000_000
    assert set(json.loads(links.texts["figure-data"])) == {figure.key for figure in report_figures(runs, comparison)}
    assert "async, colocate and elastic on nl2repo-122b" in page
    assert set(re.findall(r"\$[a-z_]+", json.dumps(json.loads(links.texts["figure-data"])))) <= {
        f"${name}" for name in palette(False)
    } | {"$policy_"}


def test_text_from_settings_is_escaped(runs: list[RunResult]) -> None:
    page = report_page(runs[:1], None, {"workload": {"profile": "<script>alert(1)</script>"}})
    assert "<script>alert" not in page


def test_the_title_names_a_trace_without_its_folders(runs: list[RunResult]) -> None:
    title = title_of(runs[:1], {"workload": {"trace": "data/traces/lengths.csv"}})
    assert title == "async on lengths.csv"


@pytest.mark.parametrize(("steps", "dtick"), [(3, 1), (48, None)])
def test_steps_have_whole_ticks(steps: int, dtick: int | None) -> None:
    record = record_run(toy_journal(Toy(steps=steps, groups_per_step=1, group_size=2)))
    assert steps_figure([RunResult(record, summarize(record))]).layout["xaxis"].get("dtick") == dtick


def test_only_long_values_with_words_may_break() -> None:
    assert (
        _unbroken("0.69 / 2 / 2") == "0.69\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}2\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}2"
    )
    assert " " not in _unbroken("301 of 2720")
    assert _unbroken("12.34 (1 of 3 runs)") == "12.34 (1 of 3 runs)"


def test_a_run_that_has_hardly_begun_has_a_page() -> None:
    for entries in (1, 2, 10):
        record = record_run(hand_journal()[:entries])
        page = report_page([RunResult(record, summarize(record))], None, {})
        assert "not complete" in page


def test_a_hundred_thousand_segments_make_a_small_page_with_the_same_shares() -> None:
    cells = [CellSpec(0, CellKind.CORE, 1, 1, CellState.TRAINING)]
    cells += [CellSpec(cell, CellKind.SATELLITE, 1, 1, CellState.TRAINING) for cell in range(1, 8)]
    journal: list[Header | Entry] = [Header({}), ev.RunStarted(0.0, tuple(cells)), cmd.OpenStep(0.0, 0)]
    for number in range(6250):
        start_s = 3.0 * number + number % 2  # one second of training, then one or three of waiting
        journal += [ev.MicroStepClaimed(start_s, cell, 0, number) for cell in range(8)]
        journal += [ev.MicroStepDone(start_s + 1.0, cell, 0, number) for cell in range(8)]
    record = record_run(journal)
    assert record.cells.height > 99_000
    result = RunResult(record, summarize(record))
    assert len(report_page([result], None, {}).encode()) < 8_000_000
    timeline = next(figure for figure in report_figures([result], None) if figure.key == "timeline")
    areas = {trace["name"]: area(trace["rectangles"]) for trace in timeline.data if "rectangles" in trace}
    share = areas["training"] / sum(areas.values())
    assert share == pytest.approx(result.summary.gpu_share[GpuUse.TRAINING], rel=1e-4)


def area(rectangles: dict[str, dict[str, str]]) -> float:
    sides = {
        name: np.frombuffer(base64.b64decode(side["bdata"]), "<f4").astype(float) for name, side in rectangles.items()
    }
    return float(((sides["x1"] - sides["x0"]) * (sides["y0"] - sides["y1"])).sum())


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("deficiency", list(DEFICIENCIES))
def test_uses_stay_apart_for_every_viewer(dark: bool, deficiency: str) -> None:
    """Just noticeable is a distance of 2.3 in CIE L*a*b*; five times that is plain at a glance."""
    colours = palette(dark)
    uses = [use for use in {*CellUse, *GpuUse} if use != CellUse.SERVING]
    for one, other in itertools.combinations(sorted(set(map(str, uses))), 2):
        distance = np.linalg.norm(lab(colours[one], deficiency) - lab(colours[other], deficiency))
        assert distance > 11.5, f"{one} and {other}, {deficiency}, dark={dark}: {distance:.1f}"
