"""How long steps took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from ..pages import Figure, Trace, axis, whole_ticks
from .comparison import RunResult
from .theme import policy_colour, policy_symbol, use_colour
from .time_unit import TimeUnit, time_unit
from .use import CellUse


def steps_figure(runs: Sequence[RunResult]) -> Figure:
    """Return step times: for one run what each step was made of, for several the steps' lengths side by side."""
    one = len(runs) == 1
    unit = time_unit((run.summary.step_s.max for run in runs), most=TimeUnit.MINUTES)
    layout: dict[str, Any] = {
        "xaxis": axis(
            "step", showgrid=False, zeroline=False, **whole_ticks(max(run.record.steps.height for run in runs))
        ),
        "yaxis": axis(unit.title, rangemode="tozero", fixedrange=True, zeroline=False),
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
        data=_parts(runs[0], unit)
        if one
        else [trace for index, run in enumerate(runs) for trace in _lengths(index, run, unit)],
        layout=layout,
        height_px=330,
        wide=False,
    )


def _parts(run: RunResult, unit: TimeUnit) -> list[Trace]:
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
            "y": (parts[column] / unit.seconds).to_list(),
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": f"%{{y:.1f}} {unit.symbol}",
        }
        for column, (name, colour) in styles.items()
    ]


def _lengths(index: int, run: RunResult, unit: TimeUnit) -> list[Trace]:
    steps = run.record.steps.filter(pl.col("duration_s").is_not_null())
    numbers, lengths = steps["step"].to_list(), (steps["duration_s"] / unit.seconds).to_list()
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    colour, group = policy_colour(index), {"legendgroup": run.policy}
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": run.policy,
            "x": numbers,
            "y": lengths,
            "line": {"width": 1, "color": colour},
            "marker": {"size": 6, "color": colour, "symbol": policy_symbol(index)},
            "hovertemplate": f"%{{y:.1f}} {unit.symbol}",
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
