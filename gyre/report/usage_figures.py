"""Where the GPU time went, and why it was idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..pages import Figure, Trace, axis
from .comparison import PolicyFigures
from .theme import use_colour
from .time_unit import time_unit
from .use import IDLE_USES, OVERHEAD_USES, USE_TITLES, GpuUse

_ORDER: Final = tuple(GpuUse)
_LABEL_SHARE: Final = 0.05  # smaller parts carry no number


def usage_figure(rows: Sequence[PolicyFigures], gpu_s: Sequence[float]) -> Figure:
    """Return GPU time by use, one bar a policy; `gpu_s` are the bars' lengths in GPU-seconds."""
    unit = time_unit(gpu_s)
    traces = [
        _bar(
            rows,
            use,
            [row.gpu_share[use] * unit.of(length_s) for row, length_s in zip(rows, gpu_s, strict=True)],
            f"%{{x:,.{unit.gpu_digits}f}} GPU-{unit.title}",
        )
        for use in _ORDER
        if any(row.gpu_share[use] > 0 for row in rows)
    ]
    return Figure(
        key="usage",
        title="GPU time by use",
        reading="A bar is all GPU time that a policy took for its steps: shorter is faster. Numbers are shares.",
        data=traces,
        layout=_layout(f"GPU-{unit.title}"),
        height_px=66 + 44 * len(rows),
        wide=False,
    )


def idle_figure(rows: Sequence[PolicyFigures]) -> Figure:
    """Return the reasons of idle and overhead time, as shares of all GPU time."""
    traces = [
        _bar(rows, use, [100 * row.gpu_share[use] for row in rows], "%{x:.2f} % of all GPU time")
        for use in (*IDLE_USES, *OVERHEAD_USES)
        if any(row.gpu_share[use] > 0 for row in rows)
    ]
    return Figure(
        key="idle",
        title="Why GPUs were not working",
        reading="Idle time by its reason, then overhead (switching, updating, publishing). Shorter is less waste.",
        data=traces,
        layout=_layout("share of all GPU time, %"),
        height_px=66 + 44 * len(rows),
        wide=False,
    )


def _bar(rows: Sequence[PolicyFigures], use: GpuUse, values: list[float], hover: str) -> Trace:
    shares = [row.gpu_share[use] for row in rows]
    return {
        "type": "bar",
        "orientation": "h",
        "name": USE_TITLES[use],
        "y": [row.policy for row in rows],
        "x": values,
        "text": [f"{100 * share:.0f} %" if share >= _LABEL_SHARE else "" for share in shares],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "none",
        "marker": {"color": use_colour(use), "line": {"width": 0}},
        "hovertemplate": f"%{{y}}<br>{USE_TITLES[use]}: {hover}<extra></extra>",
    }


def _layout(title: str) -> dict[str, object]:
    return {
        "barmode": "stack",
        "bargap": 0.35,
        "xaxis": axis(title, zeroline=False),
        "yaxis": {"autorange": "reversed", "showgrid": False, "fixedrange": True, "automargin": True, "ticks": ""},
    }
