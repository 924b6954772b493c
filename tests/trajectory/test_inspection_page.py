"""The page of one execution: valid figures, no network, nothing a harness says is taken for HTML, colours apart."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from colour_vision import DEFICIENCIES, lab
from hypothesis import given, settings
from inspected_trees import a_call, call_lists, deep_calls, seen, view_of
from page_reading import Links, painted

from gyre.role import Role
from gyre.trajectory.building import build_tree
from gyre.trajectory.inspection import TokenText, TreeView, inspection_page
from gyre.trajectory.inspection.figures import leaves_figure, role_tokens, roles_figure
from gyre.trajectory.inspection.strips import Fate
from gyre.trajectory.inspection.theme import palette
from gyre.trajectory.inspection.tree_figure import tree_figure

HOSTILE = "</script><script>alert(1)</script><b>&$css"


def texts_of(page: str) -> dict[str, str]:
    links = Links()
    links.feed(page)
    assert [link for link in links.fetched if not link.startswith("data:")] == []
    return links.texts


@given(call_lists())
@settings(max_examples=15)
def test_figures_are_valid_plotly(calls: Any) -> None:
    view, colours = seen(calls), palette(False)
    for figure in (tree_figure(view, TokenText()), leaves_figure(view), roles_figure(view)):
        go.Figure(data=painted(figure.data, colours), layout=painted(figure.layout, colours))
        tokens = set(re.findall(r'"\$([a-z_]+)"', json.dumps([figure.data, figure.layout])))
        assert tokens <= colours.keys()


@given(call_lists())
@settings(max_examples=15)
def test_bars_have_the_area_of_the_tokens(calls: Any) -> None:
    view = seen(calls)
    counts = role_tokens(view)
    assert counts.sum() == view.tree.unique_tokens
    assert counts[:, Fate.TRAINED].sum() == view.trained.sum()
    drawn = tree_figure(view, TokenText()).data
    length = 0.0
    for trace in drawn:
        if "rectangles" in trace and trace.get("showlegend", True):
            x0, x1 = (numbers(trace["rectangles"][side]) for side in ("x0", "x1"))
            assert len(trace["tips"]) == len(x0)
            length += float((x1 - x0).sum())
    assert length == view.tree.unique_tokens


def numbers(packed: dict[str, str]) -> np.ndarray[Any, Any]:
    import base64

    return np.frombuffer(base64.b64decode(packed["bdata"]), "<f4").astype(float)


def test_what_a_harness_says_is_text_and_nothing_else() -> None:
    call = {"call_id": HOSTILE, "thread": HOSTILE, "model": HOSTILE, "harness": HOSTILE, "execution": HOSTILE}
    bad = a_call(1, [1], [2], logprobs=None, **(call | {"call_id": HOSTILE + "1"}))
    shown = TokenText(lambda ids: HOSTILE)
    page = inspection_page(seen([a_call(0, [1, 2], [3], **call), bad]), shown)
    assert "<script>alert" not in page
    assert page.count("<script") == inspection_page(seen([a_call(0, [1, 2], [3])])).count("<script")
    figures = json.loads(texts_of(page)["figure-data"])
    tips = [tip for trace in figures["tree"]["data"] for tip in trace.get("tips", [])]
    assert any("<script>" in tip for tip in tips), "tips are put in as text, so they stay as they are"
    ticks = figures["tree"]["layout"]["yaxis"]["ticktext"]
    assert not any("<" in tick for tick in ticks), "Plotly reads markup in ticks"


def test_the_page_says_what_is_drawn() -> None:
    calls = [a_call(0, [1, 2], [3]), a_call(1, [1, 2, 3, 4], [5]), a_call(2, [], [1])]
    page = inspection_page(seen(calls))
    texts = texts_of(page)
    assert set(json.loads(texts["figure-data"])) == {"tree", "leaves", "roles"}
    assert "Refused calls (1)" in page
    assert "empty input" in page
    assert "Calls (2)" in page


def test_without_a_selection_nothing_is_said_of_training() -> None:
    page = inspection_page(TreeView(build_tree([a_call(0, [1, 2], [3])])))
    assert "selected" not in page.split("<script")[0]
    assert "trained</dt>" not in page
    assert "Hatched was sampled by the policy, pale is context." in page


def test_an_execution_without_tokens_has_a_page() -> None:
    page = inspection_page(view_of(build_tree([a_call(0, [], [1])])))
    assert "Refused calls (1)" in page
    assert json.loads(texts_of(page)["figure-data"]) == {}


def test_a_deep_tree_fits_a_page() -> None:
    figure = tree_figure(seen(deep_calls(400)), TokenText())
    assert figure.height_px < 400
    assert len(inspection_page(seen(deep_calls(400))).encode()) < 7_000_000


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("deficiency", list(DEFICIENCIES))
def test_roles_stay_apart_for_every_viewer(dark: bool, deficiency: str) -> None:
    """Just noticeable is a distance of 2.3 in CIE L*a*b*; five times that is plain at a glance."""
    colours = palette(dark)
    for one, other in itertools.combinations(Role, 2):
        distance = np.linalg.norm(lab(colours[one], deficiency) - lab(colours[other], deficiency))
        assert distance > 11.5, f"{one} and {other}, {deficiency}, dark={dark}: {distance:.1f}"
    for role in Role:
        full, pale = (lab(colours[f"{role}{tint}"], deficiency) for tint in ("", "_pale"))
        assert np.linalg.norm(full - pale) > 23.0


def test_very_many_calls_and_drops_fit_a_page_that_says_what_is_left_out() -> None:
    """Every turn throws the context away: a branch, a drop and a row each; Plotly itself takes 4.7 MB of the page."""
    calls = [a_call(number, [1, *range(9 * number, 9 * number + 9)], [2, number]) for number in range(4_000)]
    view = seen(calls)
    page = inspection_page(view)
    assert len(page.encode()) < 8_000_000
    assert "Calls (4,000)" in page
    assert page.count("<p>The first 500 of") == 2
    assert page.count("<tr>") == 2 * (500 + 1)
    assert "shown are the 500 largest of 3,999" in page


def test_the_length_of_one_path_has_one_tick() -> None:
    assert leaves_figure(seen([a_call(0, [1, 2], [3])])).layout["xaxis"]["dtick"] == 1
    assert "dtick" not in leaves_figure(seen([a_call(n, [n], [n]) for n in range(40)])).layout["xaxis"]
