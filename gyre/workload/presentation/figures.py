"""Distributions as one self-contained HTML page; plotly is imported only when a page is made."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from ...arrays import FloatArray
from .labels import short_number, titled

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLUMNS: Final = 3
BINS: Final = 40
LEAST_TICKS: Final = 3
MOST_TICKS: Final = 6
POINTS: Final = 200
ROW_HEIGHT_PX: Final = 230
BLUE: Final = "#2a6f97"
ORANGE: Final = "#d9822b"
STYLE: Final = (
    "body{font-family:system-ui,sans-serif;color:#222;margin:24px auto;max-width:1200px;padding:0 16px}"
    "h1{font-size:20px;margin:0 0 8px}p{margin:4px 0;font-size:13px;color:#444}"
    "table{border-collapse:collapse;font-size:12px;margin:16px 0}"
    "td,th{padding:3px 10px;text-align:right;border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child{text-align:left}"
)

Rows = list[tuple[str, ...]]


def histogram_page(title: str, notes: list[str], arrays: dict[str, FloatArray], table: Rows) -> str:
    """A page of histograms, each over the logarithm of its quantity. `table` has its headings in the first row."""
    figure = _grid(list(arrays))
    for panel, value in enumerate(arrays.values()):
        edges, count = _log_histogram(value)
        figure.add_bar(
            x=np.sqrt(edges[:-1] * edges[1:]),
            y=count / len(value),
            width=np.diff(edges),
            marker={"color": BLUE, "line": {"width": 0}},
            showlegend=False,
            row=1 + panel // COLUMNS,
            col=1 + panel % COLUMNS,
        )
        _log_axis(figure, panel, float(edges[0]), float(edges[-1]))
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    figure.update_layout(bargap=0.0)
    return _page(
        title, [*notes, "Histograms over the logarithm of each quantity; values of 0 are left out."], figure, table
    )


def overlay_page(title: str, notes: list[str], pairs: dict[str, tuple[FloatArray, FloatArray]], table: Rows) -> str:
    """A page of cumulative distributions, recorded against regenerated."""
    figure = _grid(list(pairs))
    for panel, pair in enumerate(pairs.values()):
        for value, name, colour, dash in zip(
            pair, ("recorded", "regenerated"), (BLUE, ORANGE), ("solid", "dash"), strict=True
        ):
            x, share = _cumulative(value)
            figure.add_scatter(
                x=x,
                y=share,
                mode="lines",
                name=name,
                legendgroup=name,
                showlegend=panel == 0,
                line={"color": colour, "dash": dash, "width": 1.8},
                row=1 + panel // COLUMNS,
                col=1 + panel % COLUMNS,
            )
        positive = np.concatenate([value[value > 0.0] for value in pair])
        if len(positive):
            low, high = np.quantile(positive, (0.001, 1.0))
            _log_axis(figure, panel, float(low), float(high))
    figure.update_yaxes(tickformat=".0%", range=[0, 1])
    return _page(title, [*notes, "Share of values at or below x."], figure, table)


def _grid(names: list[str]) -> Figure:
    from plotly.subplots import make_subplots

    rows = max(1, -(-len(names) // COLUMNS))
    gap = min(0.5 / rows, 0.22 if rows < 3 else 0.36 / rows)
    figure = make_subplots(
        rows=rows,
        cols=COLUMNS,
        subplot_titles=[titled(name) for name in names],
        vertical_spacing=gap,
        horizontal_spacing=0.07,
    )
    figure.update_layout(
        height=rows * ROW_HEIGHT_PX + 80,
        margin={"l": 50, "r": 20, "t": 60, "b": 30},
        plot_bgcolor="white",
        font={"size": 11},
        legend={"orientation": "h", "x": 0.0, "y": 1.0, "yref": "container", "yanchor": "top"},
    )
    figure.update_annotations(font_size=12)
    figure.update_yaxes(gridcolor="#eee", zeroline=False)
    return figure


def _log_axis(figure: Figure, panel: int, low: float, high: float) -> None:
    """A logarithmic axis labelled at round numbers."""
    high = max(high, low * 1.01)
    first, last = np.log10(low), np.log10(high)
    pad = max(0.02, 0.03 * (last - first))
    ticks = _round_numbers(low, high)
    figure.update_xaxes(
        type="log",
        range=[first - pad, last + pad],
        tickvals=ticks,
        ticktext=[short_number(float(tick)) for tick in ticks],
        tickangle=0,
        gridcolor="#eee",
        row=1 + panel // COLUMNS,
        col=1 + panel % COLUMNS,
    )


def _round_numbers(low: float, high: float) -> FloatArray:
    """About `LEAST_TICKS` to `MOST_TICKS` of 1, 2, 3, ... times powers of ten in [low, high], as round as possible."""
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks = powers
    for leading in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 4, 5, 6, 7, 8, 9)):
        ticks = np.sort(np.outer(powers, leading).ravel())
        ticks = ticks[(ticks >= low) & (ticks <= high)]
        if len(ticks) >= LEAST_TICKS:
            break
    return ticks[:: max(1, -(-len(ticks) // MOST_TICKS))]


def _log_histogram(value: FloatArray) -> tuple[FloatArray, FloatArray]:
    positive = value[value > 0.0]
    if not len(positive):
        return np.array([0.5, 2.0]), np.zeros(1)
    low, high = float(positive.min()), float(positive.max())
    edges = np.geomspace(low * 0.97, high * 1.03, BINS + 1)
    return edges, np.histogram(positive, edges)[0].astype(np.float64)


def _cumulative(value: FloatArray) -> tuple[FloatArray, FloatArray]:
    """At most `POINTS` points of the empirical distribution function."""
    ordered = np.sort(value)
    at = np.unique(np.linspace(0, len(ordered) - 1, min(POINTS, len(ordered))).astype(np.int64))
    return ordered[at], (at + 1.0) / len(ordered)


def _page(title: str, notes: list[str], figure: Figure, table: Rows) -> str:
    plot = figure.to_html(full_html=False, include_plotlyjs=True, config={"displaylogo": False, "responsive": True})
    paragraphs = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{paragraphs}{plot}{_html_table(table)}</body></html>"
    )


def _html_table(rows: Rows) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
