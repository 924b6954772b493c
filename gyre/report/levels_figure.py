"""Water level against serving capacity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from ..pages import Figure, Trace, axis, bands, packed, panel_titles
from .comparison import RunResult
from .level_log import thinned_rows
from .time_unit import TimeUnit, time_unit

_BUCKETS: Final = 400
_SERIES: Final = ("water_level", "running", "capacity")


def levels_figure(runs: Sequence[RunResult]) -> Figure:
    """Return water level, running executions and capacity over time, one panel a run."""
    domains = bands(len(runs), 0.30 / len(runs) if len(runs) > 1 else 0.0)
    span_s = max(run.record.wall_s for run in runs)
    unit = time_unit([span_s])
    layout: dict[str, Any] = {
        "annotations": panel_titles([run.policy for run in runs], domains),
        "hovermode": "x unified",
        "margin": {"l": 74, "t": 22 if len(runs) > 1 else 8},
    }
    traces: list[Trace] = []
    for index, (run, domain) in enumerate(zip(runs, domains, strict=True)):
        suffix = "" if index == 0 else str(index + 1)
        traces += _traces(run, suffix, unit, first=index == 0)
        last = index == len(runs) - 1
        shared = {} if index == 0 else {"matches": "x"}
        layout[f"xaxis{suffix}"] = {
            "anchor": f"y{suffix}",
            "range": [0, unit.of(span_s)],
            "showticklabels": last,
            "zeroline": False,
            **(axis(f"time since the run began, {unit.title}") if last else {}),
            **shared,
        }
        layout[f"yaxis{suffix}"] = axis(
            "executions", domain=domain, rangemode="tozero", fixedrange=True, zeroline=False
        )
    return Figure(
        key="levels",
        title="Water level against serving capacity",
        reading="The water level is dispatched minus finished executions. Capacity above it serves nobody; executions "
        "above the capacity wait to start, or share engines beyond their rated load.",
        data=traces,
        layout=layout,
        height_px=70 + 175 * len(runs),
    )


def _traces(run: RunResult, suffix: str, unit: TimeUnit, *, first: bool) -> list[Trace]:
    levels = run.record.levels.select("time_s", *_SERIES)
    if levels.height > 4 * _BUCKETS:
        rows = thinned_rows(levels["time_s"].to_numpy(), levels.select(_SERIES).to_numpy(), _BUCKETS)
        levels = levels[rows]
    times = packed((levels["time_s"] / unit.seconds).to_numpy())

    def trace(column: str, name: str, **style: Any) -> Trace:
        return {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "legendgroup": column,
            "showlegend": first,
            "x": times,
            "y": packed(levels[column].cast(pl.Float64).to_numpy()),
            "xaxis": f"x{suffix}",
            "yaxis": f"y{suffix}",
            "hovertemplate": "%{y:.0f}",
            **style,
        }

    return [
        trace(
            "capacity",
            "capacity of serving cells",
            line={"shape": "hv", "width": 1, "color": "$serving"},
            fill="tozeroy",
            fillcolor="$serving_idle",
        ),
        trace("running", "running", line={"shape": "hv", "width": 1, "color": "$muted", "dash": "dot"}),
        trace("water_level", "water level", line={"shape": "hv", "width": 1.8, "color": "$ink"}),
    ]
