"""How long steps took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from ..pages import Figure, Trace, axis
from .comparison import RunResult
from .theme import policy_colour, policy_symbol, use_colour
from .use import CellUse

_MINUTE_S = 60.0
_MOST_SINGLE_TICKS = 16


def steps_figure(runs: Sequence[RunResult]) -> Figure:
    """Return step times: for one run what each step was made of, for several the steps' lengths side by side."""
    one = len(runs) == 1
    layout: dict[str, Any] = {
        "xaxis": axis("step", showgrid=False, zeroline=False, **_whole_ticks(runs)),
        "yaxis": axis("minutes", rangemode="tozero", fixedrange=True, zeroline=False),
        "hovermode": "x unified",
    }
    if one:
        layout |= {"barmode": "stack", "bargap": 0.15}
    return Figure(
        key="steps",
        title="Step times",
        reading="A bar is one step, from the end of the one before: wait for samples, gradients, update, publish."
        if one
        else "From the end of one step, its publish included, to the end of the next. Thick lines are means.",
        data=_parts(runs[0]) if one else [trace for index, run in enumerate(runs) for trace in _lengths(index, run)],
        layout=layout,
        height_px=330,
        wide=False,
    )


def _whole_ticks(runs: Sequence[RunResult]) -> dict[str, int]:
    """Return a tick a step where there are few: left alone, Plotly puts ticks between them."""
    return {"dtick": 1} if max(run.record.steps.height for run in runs) <= _MOST_SINGLE_TICKS else {}


def _parts(run: RunResult) -> list[Trace]:
    steps = run.record.steps.filter(pl.col("duration_s").is_not_null())
    after_update = (pl.col("published_s") - pl.col("updated_s")).fill_null(0.0)
    parts = steps.select(
        pl.col("step"),
        update=pl.col("updated_s") - pl.col("applied_s"),
        gradients=pl.col("applied_s") - pl.col("opened_s"),
        publish=after_update,
        wait=pl.col("duration_s") - after_update - (pl.col("updated_s") - pl.col("opened_s")),
    )
    styles = {
        "wait": ("before the step opens", use_colour(CellUse.WAITING_FOR_SAMPLES)),
        "gradients": ("gradients, step open", use_colour(CellUse.TRAINING)),
        "update": ("update", use_colour(CellUse.UPDATING)),
        "publish": ("publish", use_colour(CellUse.PUBLISHING)),
    }
    return [
        {
            "type": "bar",
            "name": name,
            "x": parts["step"].to_list(),
            "y": (parts[column] / _MINUTE_S).to_list(),
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": "%{y:.1f} min",
        }
        for column, (name, colour) in styles.items()
    ]


def _lengths(index: int, run: RunResult) -> list[Trace]:
    steps = run.record.steps.filter(pl.col("duration_s").is_not_null())
    numbers, minutes = steps["step"].to_list(), (steps["duration_s"] / _MINUTE_S).to_list()
    mean = sum(minutes) / len(minutes) if minutes else 0.0
    colour, group = policy_colour(index), {"legendgroup": run.policy}
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": run.policy,
            "x": numbers,
            "y": minutes,
            "line": {"width": 1, "color": colour},
            "marker": {"size": 6, "color": colour, "symbol": policy_symbol(index)},
            "hovertemplate": "%{y:.1f} min",
            **group,
        },
        {
            "type": "scatter",
            "mode": "lines",
            "x": numbers[:1] + numbers[-1:],
            "y": [mean, mean],
            "line": {"width": 3, "color": colour},
            "opacity": 0.5,
            "showlegend": False,
            "hoverinfo": "skip",
            **group,
        },
    ]
