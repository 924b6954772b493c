"""The HTML report: one file that needs no network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from plotly.offline import get_plotlyjs

from .. import __version__
from .comparison import Comparison, RunResult, compare_runs
from .executions_figures import ends_figure, lengths_figure
from .figure import Figure
from .headline import comparison_html, facts_html, tiles_html, title_of
from .levels_figure import levels_figure
from .settings_file import settings_toml
from .staleness_figure import staleness_figure
from .steps_figure import steps_figure
from .theme import palette
from .timeline_figure import timeline_figure
from .usage_figures import idle_figure, usage_figure

_ASSETS: Final = files(__package__) / "assets"
_MOST_BESIDE: Final = 3  # policies whose table leaves room for a figure beside it


def report_page(results: Sequence[RunResult], comparison: Comparison | None, settings: Mapping[str, Any]) -> str:
    """Return the report of one run (`comparison` None) or of a comparison as HTML.

    Distributions are over all runs of a policy; the timeline, levels and steps show each policy's first run.
    """
    figures = report_figures(results, comparison)
    return Template(_asset("page.html")).substitute(
        title=escape(title_of(results, settings)),
        css=_colours_css() + _asset("page.css"),
        facts=facts_html(results, settings),
        headline=tiles_html(results[0].summary) if comparison is None else comparison_html(comparison),
        span="tall" if comparison is not None and len(comparison.policies) <= _MOST_BESIDE else "wide",
        figures="\n".join(_figure_html(figure) for figure in figures),
        settings=escape(settings_toml(settings)),
        version=escape(__version__),
        data=_script_json({figure.key: _plotly(figure) for figure in figures}),
        palettes=_script_json({"light": palette(False), "dark": palette(True)}),
        plotly=get_plotlyjs(),
        script=_asset("page.js"),
    )


def report_figures(results: Sequence[RunResult], comparison: Comparison | None) -> list[Figure]:
    """Return the report's figures in the order in which they are shown; those without data are left out."""
    by_policy: dict[str, list[RunResult]] = {}
    for result in results:
        if result.record.specs and result.record.wall_s > 0:
            by_policy.setdefault(result.policy, []).append(result)
    if not by_policy:
        return []
    rows = (comparison or compare_runs(results)).policies
    rows = [row for row in rows if row.policy in by_policy]
    by_policy = {row.policy: by_policy[row.policy] for row in rows}  # one order, and so one colour, everywhere
    gpu_hours = [
        sum(run.summary.gpu_hours for run in by_policy[row.policy]) / len(by_policy[row.policy]) for row in rows
    ]
    shown = [runs[0] for runs in by_policy.values()]
    return [
        usage_figure(rows, gpu_hours),
        idle_figure(rows),
        timeline_figure(shown),
        levels_figure(shown),
        steps_figure(shown),
        staleness_figure(by_policy),
        lengths_figure(by_policy),
        ends_figure(by_policy),
    ]


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _colours_css() -> str:
    """Return both palettes as CSS variables; `dark` applies by the reader's setting or by the page's own button."""

    def variables(dark: bool) -> str:
        return "".join(f"--{name}:{colour};" for name, colour in palette(dark).items())

    return (
        f":root{{color-scheme:light;{variables(False)}}}\n"
        f"@media screen{{:root[data-ground=dark]{{color-scheme:dark;{variables(True)}}}}}\n"
    )


def _figure_html(figure: Figure) -> str:
    return (
        f'<figure id="{figure.key}" class="{"wide" if figure.wide else "half"}">'
        f"<h2>{escape(figure.title)}</h2><figcaption>{escape(figure.reading)}</figcaption>"
        f'<div class="plot" data-key="{figure.key}" style="height:{figure.height_px}px"></div></figure>'
    )


def _plotly(figure: Figure) -> dict[str, Any]:
    return {"data": figure.data, "layout": figure.layout, **figure.pointer}


def _script_json(value: Any) -> str:
    """Return JSON that may stand inside a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
