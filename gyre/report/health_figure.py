"""How healthy the training is, step by step: small multiples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..pages import Figure, Trace, axis, note, whole_ticks
from ..watch import AlertName, StepFigures
from ..watch.clustered import Clustered
from ..watch.figures import COMPLETION, SCORE, TOKENS, TOOL_CALLS, VALID
from .comparison import RunResult
from .theme import policy_colour, policy_dash

_COLUMNS: Final = 3
_ROW_PX: Final = 190
_GAP: Final = 0.055  # between columns, of the width
_BAND: Final = 1.96  # standard errors

Point = tuple[float, float | None]  # a value and its standard error


@dataclass(frozen=True, slots=True)
class _Panel:
    """One figure of every step; `read` gives None where there is none. Alerts on it are shaded."""

    title: str
    read: Callable[[StepFigures], Point | None]
    alerts: tuple[tuple[AlertName, str], ...] = ()  # name, and subject or ""
    nothing: bool = False  # leave it out where it is 0 throughout
    share: bool = False


def _mean(key: str) -> Callable[[StepFigures], Point | None]:
    return lambda step: _point(step.means.get(key))


def _point(mean: Clustered | None, scale: float = 1.0, of: float = 0.0) -> Point | None:
    if mean is None or mean.mean is None:
        return None
    return of + scale * mean.mean, mean.error


def _value(value: float | None) -> Point | None:
    return None if value is None else (value, None)


_PANELS: Final = (
    _Panel(
        "completion rate, %",
        _mean(COMPLETION),
        ((AlertName.COMPLETION_LOW, ""), (AlertName.FORGETTING, "completion rate")),
        share=True,
    ),
    _Panel(
        "mean score", _mean(SCORE), ((AlertName.FORGETTING, "mean score"), (AlertName.REWARD_HACKING, ""))
    ),
    _Panel(
        "groups with one score, %",
        lambda step: _value(step.zero_variance_share),
        ((AlertName.ZERO_VARIANCE_HIGH, ""),),
        share=True,
    ),
    _Panel("tool calls an execution", _mean(TOOL_CALLS), ((AlertName.TOOL_CALLS_COLLAPSE, ""),), nothing=True),
    _Panel("sampled tokens an execution", _mean(TOKENS), nothing=True),
    _Panel("staleness, versions", lambda step: _value(step.staleness_mean), ((AlertName.STALENESS_HIGH, ""),)),
    _Panel(
        "evaluations that failed, %",
        lambda step: _point(step.flow.means.get(VALID), scale=-1.0, of=1.0),
        ((AlertName.INVALID_HIGH, ""),),
        nothing=True,
        share=True,
    ),
)  # fmt: skip


def health_figure(runs: Sequence[RunResult]) -> Figure | None:
    """Return the figures of every step, one panel each and one line a run; None where no step has any."""
    kl_metric = runs[0].record.health.settings.kl_metric
    names = dict.fromkeys(name for run in runs for step in run.record.health.steps for name in step.metrics)
    trainer = [
        _Panel(
            name,
            lambda step, name=name: _value(step.metrics.get(name)),  # type: ignore[misc]
            ((AlertName.KL_HIGH, ""),) if name == kl_metric else (),
        )
        for name in sorted(names, key=lambda name: (name != kl_metric, name))
    ]
    panels = [panel for panel in (*_PANELS[:4], *trainer, *_PANELS[4:]) if _has_data(panel, runs)]
    if not panels:
        return None
    rows = math.ceil(len(panels) / _COLUMNS)
    layout: dict[str, Any] = {"annotations": [], "shapes": [], "margin": {"l": 44, "r": 12, "t": 24, "b": 42}}
    traces: list[Trace] = []
    for place, panel in enumerate(panels):
        suffix = "" if place == 0 else str(place + 1)
        _lay_out(layout, panel, place, rows, len(panels), steps=_most_steps(runs))
        for index, run in enumerate(runs):
            traces += _lines(panel, run, index, suffix, alone=len(runs) == 1, first=place == 0)
            layout["shapes"] += _spans(panel, run, suffix)
    return Figure(
        key="health",
        title="Health of the training",
        reading="Of the groups that each step trained"
        + (". Bands are 95 % intervals over groups" if len(runs) == 1 else ", a line a policy")
        + "; a shaded stretch is an alert.",
        data=traces,
        layout=layout,
        height_px=30 + _ROW_PX * rows,
    )


def _most_steps(runs: Sequence[RunResult]) -> int:
    return max(len(run.record.health.steps) for run in runs)


def _has_data(panel: _Panel, runs: Sequence[RunResult]) -> bool:
    values = [point[0] for run in runs for step in run.record.health.steps if (point := panel.read(step)) is not None]
    return any(values) if panel.nothing else bool(values)


def _lay_out(layout: dict[str, Any], panel: _Panel, place: int, rows: int, panels: int, *, steps: int) -> None:
    row, column = divmod(place, _COLUMNS)
    width = (1.0 - _GAP * (_COLUMNS - 1)) / _COLUMNS
    gap = 0.32 / rows if rows > 1 else 0.0
    height = (1.0 - gap * (rows - 1)) / rows
    left, top = column * (width + _GAP), 1.0 - row * (height + gap)
    suffix = "" if place == 0 else str(place + 1)
    lowest = place + _COLUMNS >= panels
    layout[f"xaxis{suffix}"] = {
        "domain": [left, left + width],
        "anchor": f"y{suffix}",
        "showgrid": False,
        "zeroline": False,
        **whole_ticks(steps),
        **(axis("step") if lowest else {}),
        **({"matches": "x"} if place else {}),
    }
    layout[f"yaxis{suffix}"] = {
        "domain": [max(0.0, top - height), top],
        "anchor": f"x{suffix}",
        "fixedrange": True,
        "zeroline": False,
        "rangemode": "tozero",
        "nticks": 5,
    }
    layout["annotations"].append(
        note(f"<b>{panel.title}</b>", left, top, xanchor="left", yanchor="bottom", font={"size": 12})
    )


def _lines(panel: _Panel, run: RunResult, index: int, suffix: str, *, alone: bool, first: bool) -> Iterator[Trace]:
    scale = 100.0 if panel.share else 1.0
    points = [(step.step, point) for step in run.record.health.steps if (point := panel.read(step)) is not None]
    steps = [step for step, _ in points]
    place = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "legendgroup": run.policy}
    colour = "$serving" if alone else policy_colour(index)
    if alone and any(error for _, (_, error) in points):
        half = [_BAND * (error or 0.0) for _, (_, error) in points]
        high = [scale * (value + wide) for (_, (value, _)), wide in zip(points, half, strict=True)]
        low = [scale * max(0.0, value - wide) for (_, (value, _)), wide in zip(points, half, strict=True)]
        yield {
            "type": "scatter",
            "mode": "lines",
            "x": steps + steps[::-1],
            "y": high + low[::-1],
            "fill": "toself",
            "fillcolor": "$serving_idle",
            "line": {"width": 0, "color": "$serving_idle"},
            "hoverinfo": "skip",
            "showlegend": False,
            **place,
        }
    yield {
        "type": "scatter",
        "mode": "lines" if len(points) > 1 else "markers",
        "name": run.policy,
        "showlegend": first and not alone,
        "x": steps,
        "y": [scale * value for _, (value, _) in points],
        "line": {"width": 1.6, "color": colour, "dash": "solid" if alone else policy_dash(index)},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": f"{'' if alone else run.policy + ', '}step %{{x}}: %{{y:.4g}}<extra></extra>",
        **place,
    }


def _spans(panel: _Panel, run: RunResult, suffix: str) -> Iterator[dict[str, Any]]:
    """Yield what shades the alerts on a panel."""
    health = run.record.health
    for alert in health.alerts:
        if any(alert.name is name and subject in ("", alert.subject) for name, subject in panel.alerts):
            end = health.steps[-1].step if alert.ended_step is None else alert.ended_step
            yield {
                "type": "rect",
                "layer": "below",
                "xref": f"x{suffix}",
                "yref": f"y{suffix} domain",
                "x0": alert.step - 0.5,
                "x1": end + 0.5,
                "y0": 0,
                "y1": 1,
                "fillcolor": "$warning",
                "opacity": 0.14,
                "line": {"width": 0},
            }
