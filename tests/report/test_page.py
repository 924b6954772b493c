"""The HTML report: valid figures, no network, every run drawn, colours that stay apart."""

from __future__ import annotations

import base64
import itertools
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
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


def painted(value: Any) -> Any:
    """Put real colours in, as the page's script does, and expand rectangles."""
    if isinstance(value, str) and value.startswith("$"):
        return palette(False)[value[1:]]
    if isinstance(value, dict):
        return {key: painted(item) for key, item in value.items() if key != "rectangles"}
    return [painted(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("several", [False, True])
def test_figures_are_valid_plotly(runs: list[RunResult], comparison: Comparison, several: bool) -> None:
    figures = report_figures(runs, comparison) if several else report_figures(runs[2:], None)
    assert len({figure.key for figure in figures}) == len(figures) == 8
    for figure in figures:
        go.Figure(data=painted(figure.data), layout=painted(figure.layout))  # raises for an unknown property
        assert figure.reading
        assert "\n" not in figure.reading
        axes = [value for key, value in figure.layout.items() if key.startswith("xaxis")]
        assert any("title" in axis for axis in axes), f"{figure.key}: no unit on the time or share axis"


class Links(HTMLParser):
    """Collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.texts: dict[str, str] = {}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._inside = (found.get("id") or "") if tag == "script" else ""
        for name in ("src", "href"):
            if found.get(name):
                self.fetched.append(str(found[name]))

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside] = self.texts.get(self._inside, "") + data


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


# Machado, Oliveira & Fernandes 2009, "A physiologically-based model for simulation of color vision deficiency": their
# matrices of full protanopia and deuteranopia, on linear RGB.
_DEFICIENCIES = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "none": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
}


def lab(colour: str, deficiency: str) -> np.ndarray[Any, Any]:
    """CIE L*a*b* (D65) of a colour as a viewer with `deficiency` sees it."""
    srgb = np.array([int(colour[index : index + 2], 16) for index in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(_DEFICIENCIES[deficiency]) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = to_xyz @ seen / np.array([0.9505, 1.0, 1.089])
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("deficiency", list(_DEFICIENCIES))
def test_uses_stay_apart_for_every_viewer(dark: bool, deficiency: str) -> None:
    """Just noticeable is a distance of 2.3 in CIE L*a*b*; five times that is plain at a glance."""
    colours = palette(dark)
    uses = [use for use in {*CellUse, *GpuUse} if use != CellUse.SERVING]
    for one, other in itertools.combinations(sorted(set(map(str, uses))), 2):
        distance = np.linalg.norm(lab(colours[one], deficiency) - lab(colours[other], deficiency))
        assert distance > 11.5, f"{one} and {other}, {deficiency}, dark={dark}: {distance:.1f}"
