"""The HTML report: one file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean
from typing import Any, Final

from .. import __version__
from ..pages import Figure, figure_html, offline_page
from .comparison import Comparison, RunResult, compare_runs
from .executions_figures import ends_figure, lengths_figure
from .headline import as_of, comparison_html, facts_html, tiles_html, title_of
from .health_figure import health_figure
from .health_tables import alerts_html, cancelled_html, reading_html, transfers_html
from .levels_figure import levels_figure
from .reading_sample import reading_sample
from .rules_figures import alike_figure, checks_figure
from .selection import length_selection
from .selection_figure import selection_figure
from .settings_file import settings_toml
from .staleness_figure import staleness_figure
from .steps_figure import steps_figure
from .theme import palette
from .timeline_figure import timeline_figure
from .transfer_log import transfer_times
from .usage_figures import idle_figure, usage_figure

_MOST_BESIDE: Final = 3  # policies whose table leaves room for a figure beside it
_FOOTER: Final = (
    f"Made by gyre {escape(__version__)} from the runs' journals alone. Drag to zoom, double-click to zoom out, click "
    "a legend's name to hide it. Every cell's micro-steps are in <code>timeline.json</code> (ui.perfetto.dev), all "
    "figures in the Parquet files of the run's folder, once it has ended."
)


def report_page(
    results: Sequence[RunResult],
    comparison: Comparison | None,
    settings: Mapping[str, Any],
    more: str | None = None,
    *,
    going_on: bool = False,
) -> str:
    """Return the report of one run (`comparison` None) or of a comparison as HTML.

    Distributions are over all runs of a policy; the timeline, levels, steps and health show each policy's first run.
    `more` is HTML that follows the figures: sections like `health_tables` makes; left out, the executions to read.
    `going_on` says that the runs are not over: the page then tells how far they were.
    """
    figures = report_figures(results, comparison)
    headline = tiles_html(results[0].summary) if comparison is None else comparison_html(comparison)
    span = "tall" if comparison is not None and len(comparison.policies) <= _MOST_BESIDE else "wide"
    drawn = "\n".join(map(figure_html, figures))
    return offline_page(
        title=title_of(results, settings),
        facts=facts_html(results, settings, as_of(results, comparison) if going_on else ""),
        body=f'<section class="figures">\n{alerts_html(results)}<section class="headline {span}">{headline}</section>\n'
        f"{drawn}\n{_transfers(results)}{_cancelled(results)}{_to_read(results) if more is None else more}</section>\n"
        f"<details><summary>Settings</summary><pre>{escape(settings_toml(settings))}</pre></details>",
        footer=_FOOTER,
        figures=figures,
        light=palette(False),
        dark=palette(True),
    )


def _cancelled(results: Sequence[RunResult]) -> str:
    return cancelled_html(length_selection(results[0].record).cancelled) if len(results) == 1 else ""


def _transfers(results: Sequence[RunResult]) -> str:
    return transfers_html(transfer_times(results[0].record.transfers)) if len(results) == 1 else ""


def _to_read(results: Sequence[RunResult]) -> str:
    return reading_html(reading_sample(results[0].record), {}) if len(results) == 1 else ""


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
    gpu_s = [fmean(run.record.gpus * run.record.wall_s for run in by_policy[row.policy]) for row in rows]
    shown = [runs[0] for runs in by_policy.values()]
    figures = [
        usage_figure(rows, gpu_s),
        idle_figure(rows),
        timeline_figure(shown),
        levels_figure(shown),
        steps_figure(shown),
        staleness_figure(by_policy),
        lengths_figure(by_policy),
        ends_figure(by_policy),
        health_figure(shown),
        checks_figure(shown),
        alike_figure(shown),
        selection_figure(length_selection(shown[0].record)) if len(results) == 1 else None,
    ]
    return [figure for figure in figures if figure is not None]
