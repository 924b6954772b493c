"""How long executions took, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from ..arrays import FloatArray
from ..pages import Figure, Trace, axis, packed
from .comparison import RunResult
from .theme import policy_colour, policy_dash
from .time_unit import time_unit

_MOST_POINTS: Final = 500
_ENDS: Final[dict[str, tuple[str, str]]] = {  # colour and pattern
    "trained": ("$serving", ""),
    "unfinished": ("$grid", ""),
}
_LOSSES: Final = (("$policy_2", ""), ("$training", ""), ("$updating", ""), ("$switching", ""), ("$muted", ""))


def lengths_figure(runs_by_policy: Mapping[str, Sequence[RunResult]]) -> Figure:
    """Return the distribution of executions' lengths, over all runs of each policy."""
    traces: list[Trace] = []
    lengths_s = {policy: _lengths_s(runs) for policy, runs in runs_by_policy.items()}
    longest_s = max((float(lengths[-1]) for lengths in lengths_s.values() if len(lengths)), default=0.0)
    unit = time_unit([longest_s])
    for index, (policy, lengths) in enumerate(lengths_s.items()):
        if not len(lengths):
            continue
        kept = np.unique(np.linspace(0, len(lengths) - 1, min(len(lengths), _MOST_POINTS)).round().astype(np.int64))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": policy,
                "x": packed(lengths[kept] / unit.seconds),
                "y": packed(100 * (kept + 1) / len(lengths)),
                "line": {"width": 1.8, "color": policy_colour(index), "dash": policy_dash(index), "shape": "hv"},
                "hovertemplate": f"{policy}: %{{y:.1f}} % end within %{{x:.2f}} {unit.symbol}<extra></extra>",
            }
        )
    return Figure(
        key="lengths",
        title="Lengths of executions",
        reading="Share of executions that ended within the time below, from start to end. The right-hand tail is what "
        "schedulers wait for.",
        data=traces,
        layout={
            "xaxis": axis(f"{unit.title} from start to end", range=[0, 1.03 * unit.of(longest_s)], zeroline=False),
            "yaxis": axis("executions, %", range=[0, 102], fixedrange=True, zeroline=False),
        },
        height_px=330,
        wide=False,
    )


def _lengths_s(runs: Sequence[RunResult]) -> FloatArray:
    """Return how long executions that ended took, in seconds, (executions,), ascending."""
    executions = pl.concat([run.record.executions for run in runs])
    return (executions["finished_s"] - executions["started_s"]).drop_nulls().sort().to_numpy()


def ends_figure(runs_by_policy: Mapping[str, Sequence[RunResult]]) -> Figure:
    """Return what became of executions: trained, lost by reason, or unfinished when the run ended."""
    counts = {policy: _ends(runs) for policy, runs in runs_by_policy.items()}
    reasons = sorted({name for ends in counts.values() for name in ends if name not in _ENDS})
    styles = {"trained": _ENDS["trained"]}
    styles |= {reason: _LOSSES[index % len(_LOSSES)] for index, reason in enumerate(reasons)}
    styles |= {"unfinished": _ENDS["unfinished"]}
    traces = []
    for name, (colour, _) in styles.items():
        shares = [100 * ends.get(name, 0) / max(1, sum(ends.values())) for ends in counts.values()]
        if any(shares):
            title = name.replace("_", " ")
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": title,
                    "y": list(counts),
                    "x": shares,
                    "customdata": [ends.get(name, 0) for ends in counts.values()],
                    "text": [f"{share:.0f} %" if share >= 5 else "" for share in shares],
                    "textposition": "inside",
                    "insidetextanchor": "middle",
                    "textangle": 0,
                    "constraintext": "none",
                    "marker": {"color": colour, "line": {"width": 0}},
                    "hovertemplate": f"%{{y}}<br>{title}: %{{customdata}} (%{{x:.1f}} %)<extra></extra>",
                }
            )
    return Figure(
        key="ends",
        title="What became of executions",
        reading="Blue was trained on. Every other colour is an execution lost, by reason; the palest still ran at the "
        "run's end.",
        data=traces,
        layout={
            "barmode": "stack",
            "bargap": max(0.35, 1 - 0.2 * len(counts)),
            "xaxis": axis("executions, %", range=[0, 100], zeroline=False),
            "yaxis": {"autorange": "reversed", "showgrid": False, "fixedrange": True, "automargin": True, "ticks": ""},
        },
        height_px=330,
        wide=False,
    )


def _ends(runs: Sequence[RunResult]) -> dict[str, int]:
    ends: dict[str, int] = {}
    for run in runs:
        fates = run.summary.executions
        parts = {"trained": fates.consumed, "unfinished": fates.unfinished, **fates.lost_by_reason}
        for name, count in parts.items():
            ends[name] = ends.get(name, 0) + count
    return ends
