"""The cell timeline: what every cell did, one lane a cell, one block of lanes a policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from ..cluster import CellKind, CellSpec
from ..pages import Figure, Trace, axis, packed
from .comparison import RunResult
from .lane_rectangles import Rectangle, rectangles, stretches, windows
from .theme import use_colour
from .time_unit import time_unit
from .use import USE_TITLES, GpuUse

_LANE: Final = 0.84  # of the distance between lanes
_MOST_RECTANGLES: Final = 60_000
_HEADING_PX: Final = 30.0  # kept free above a block
_TICK_PX: Final = 13.0
_LEGEND_ORDER: Final = tuple(GpuUse)


def timeline_figure(runs: Sequence[RunResult]) -> Figure:
    """Return the timeline of runs, one block below the other on one time axis."""
    lanes = sum(len(run.record.specs) for run in runs)
    span_s = max(run.record.wall_s for run in runs)
    unit = time_unit([span_s])
    lane_px = min(26.0, max(7.0, 900.0 / max(1, lanes)))
    columns = min(1500, max(200, _MOST_RECTANGLES // (3 * max(1, lanes))))
    found: dict[GpuUse, list[tuple[float, float, float, float]]] = {}
    ticks: list[tuple[float, str]] = []
    names: list[str] = []
    headings: list[dict[str, Any]] = []
    publishes: list[tuple[float, float]] = []
    row = 0.0
    for run in runs:
        if len(runs) > 1:
            row += _HEADING_PX / lane_px
            text = f"<b>{run.policy}</b>  {unit.of(run.record.wall_s):.2f} {unit.symbol}"
            headings.append(_heading(text, row - 0.55 * _HEADING_PX / lane_px))
        publishes += [(unit.of(time_s), row - 2.5 / lane_px) for time_s, _ in run.record.publishes]
        for spec in run.record.specs:
            ticks.append((row + 0.5, _lane_name(spec)))
            names.append(f"{run.policy}, {_lane_name(spec)}" if len(runs) > 1 else _lane_name(spec))
            for start_s, end_s, bottom, top, use in _cell_rectangles(run, spec.cell, span_s / columns):
                low, high = row + 0.5 + _LANE * (0.5 - bottom), row + 0.5 + _LANE * (0.5 - top)
                found.setdefault(use, []).append((unit.of(start_s), unit.of(end_s), low, high))
            row += 1
    every = max(1, math.ceil(_TICK_PX / lane_px))
    layout = {
        "xaxis": axis(
            f"time since the run began, {unit.title}", range=[0, unit.of(span_s)], showgrid=True, zeroline=False
        ),
        "yaxis": {
            "range": [row + 0.1, -8.0 / lane_px],
            "tickvals": [at for at, _ in ticks[::every]],
            "ticktext": [text for _, text in ticks[::every]],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            "ticks": "",
            "tickfont": {"size": 11 if lane_px > _TICK_PX else 10},
        },
        "annotations": headings,
        "margin": {"l": 74, "t": 4},
        "hovermode": False,
    }
    return Figure(
        key="timeline",
        title="What every cell did",
        reading="One lane is one cell. Strong colours are work, pale ones idle time; where a lane is divided by height,"
        " the heights are shares of that stretch of time. Ticks above the lanes are publishes of new weights.",
        data=[*_traces(found), _publish_trace(publishes)],
        layout=layout,
        height_px=int(row * lane_px + 80),
        pointer={"lanes": names, "rows": [at - 0.5 for at, _ in ticks], "fill": _LANE, "unit_s": unit.seconds},
    )


def _lane_name(spec: CellSpec) -> str:
    return f"cell {spec.cell}" + {CellKind.CORE: " core", CellKind.STANDALONE: " serve"}.get(spec.kind, "")


def _heading(text: str, row: float) -> dict[str, Any]:
    place = {"x": 0, "xref": "paper", "y": row, "yref": "y", "xanchor": "left", "yanchor": "middle"}
    return {"text": text, "showarrow": False, "font": {"size": 13}, **place}


def _cell_rectangles(run: RunResult, cell: int, window_s: float) -> list[Rectangle]:
    mine = pl.col("cell") == cell
    segments = run.record.cells.filter(mine).select("start_s", "end_s", "use").rows()
    meters = run.record.meters.filter(mine)
    parts = stretches(segments, meters["time_s"].to_numpy(), meters["busy_s"].to_numpy())
    return list(rectangles(windows(parts, window_s)))


def _traces(found: dict[GpuUse, list[tuple[float, float, float, float]]]) -> list[Trace]:
    traces = []
    for use in _LEGEND_ORDER:
        if use in found:
            x0, x1, y0, y1 = np.array(found[use]).T
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": USE_TITLES[use],
                    "fill": "toself",
                    "fillcolor": use_colour(use),
                    "line": {"width": 0, "simplify": False},
                    "hoverinfo": "skip",
                    "rectangles": {"x0": packed(x0), "x1": packed(x1), "y0": packed(y0), "y1": packed(y1)},
                }
            )
    return traces


def _publish_trace(publishes: list[tuple[float, float]]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "publish",
        "x": packed([x for x, _ in publishes]),
        "y": packed([y for _, y in publishes]),
        "marker": {
            "symbol": "line-ns",
            "size": 6,
            "line": {"width": 1.2, "color": "$publishing"},
            "color": "$publishing",
        },
        "hoverinfo": "skip",
        "showlegend": False,
    }
