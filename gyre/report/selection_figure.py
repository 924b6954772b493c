"""Which lengths were trained, and what became of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..pages import Figure, Trace, axis, note
from .selection import LengthClass, LengthSelection
from .time_unit import TimeUnit, time_unit

_STYLES: Final = ("$policy_2", "$training", "$updating", "$switching", "$muted")
_UNFINISHED: Final = "unfinished"
_SHORT: Final = 0.005  # share of executions below which classes at the ends are put together


def selection_figure(selection: LengthSelection) -> Figure | None:
    """Return offered against trained executions by length, and the fate of each class; None where none started."""
    classes = merged_ends(selection.by_seconds)
    if not classes or not selection.trained:
        return None
    names = [_span(one, index == 0, index == len(classes) - 1) for index, one in enumerate(classes)]
    reasons = sorted({reason for one in classes for reason in one.not_trained if reason != _UNFINISHED})
    traces = [
        _shares("offered", "$waiting_for_others", names, [one.offered for one in classes]),
        _shares("trained", "$serving", names, [one.trained for one in classes]),
        _fates("trained", "$serving", names, classes, [one.trained for one in classes], legend=False),
    ]
    styles = {reason: _STYLES[index % len(_STYLES)] for index, reason in enumerate(reasons)}
    for reason, colour in {**styles, _UNFINISHED: "$grid"}.items():
        counts = [one.not_trained.get(reason, 0) for one in classes]
        if any(counts):
            traces.append(_fates(reason.replace("_", " "), colour, names, classes, counts, legend=True))
    middle = {"xanchor": "center", "yanchor": "bottom", "font": {"size": 12}}
    return Figure(
        key="selection",
        title="Which lengths were trained",
        reading="Left: executions by their length, offered and trained; where the two part, training sees another mix. "
        f"Right: what became of each class. {selection.sentence}".rstrip(),
        data=traces,
        layout={
            "barmode": "stack",
            "bargap": 0.2,
            "margin": {"t": 22},
            "xaxis": axis("length from start to end", domain=[0.0, 0.47], type="category", showgrid=False),
            "xaxis2": axis(
                "length from start to end", domain=[0.53, 1.0], type="category", showgrid=False, anchor="y2"
            ),
            "yaxis": axis("executions, %", rangemode="tozero", fixedrange=True, zeroline=False),
            "yaxis2": {"anchor": "x2", "range": [0, 100], "fixedrange": True, "ticksuffix": " %", "zeroline": False},
            "annotations": [
                note("<b>offered and trained</b>", 0.235, 1.0, **middle),
                note("<b>what became of them</b>", 0.765, 1.0, **middle),
            ],
        },
        height_px=350,
    )


def merged_ends(classes: Sequence[LengthClass]) -> list[LengthClass]:
    """Put the few executions of the shortest classes, and those of the longest, together."""
    merged = list(classes)
    total = sum(one.offered for one in merged)
    while len(merged) > 2 and merged[0].offered < _SHORT * total:
        merged[:2] = [_together(merged[0], merged[1])]
    while len(merged) > 2 and merged[-1].offered < _SHORT * total:
        merged[-2:] = [_together(merged[-2], merged[-1])]
    return merged


def _together(one: LengthClass, other: LengthClass) -> LengthClass:
    reasons = {**one.not_trained, **other.not_trained}
    return LengthClass(
        low=one.low,
        offered=one.offered + other.offered,
        trained=one.trained + other.trained,
        not_trained={reason: one.not_trained.get(reason, 0) + other.not_trained.get(reason, 0) for reason in reasons},
        high=other.high,
    )


def _span(one: LengthClass, first: bool, last: bool) -> str:
    low, high = _duration(one.low), _duration(one.high)
    return f"under {high}" if first else f"{low} and more" if last else f"{low} – {high}"


def _duration(seconds: float) -> str:
    unit = time_unit([seconds])
    return f"{unit.of(seconds):.{1 if unit is TimeUnit.HOURS else 0}f} {unit.symbol}"


def _shares(name: str, colour: str, names: list[str], counts: list[int]) -> Trace:
    whole = sum(counts) or 1
    return {
        "type": "bar",
        "name": name,
        "legendgroup": name,
        "x": names,
        "y": [100.0 * count / whole for count in counts],
        "customdata": counts,
        "offsetgroup": name,
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertemplate": f"%{{x}}, {name}: %{{customdata}} (%{{y:.1f}} %)<extra></extra>",
    }


def _fates(
    name: str, colour: str, names: list[str], classes: Sequence[LengthClass], counts: list[int], *, legend: bool
) -> Trace:
    return {
        "type": "bar",
        "name": name,
        "legendgroup": name,
        "showlegend": legend,
        "x": names,
        "y": [100.0 * count / (one.offered or 1) for count, one in zip(counts, classes, strict=True)],
        "customdata": counts,
        "xaxis": "x2",
        "yaxis": "y2",
        "offsetgroup": "fates",
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertemplate": f"%{{x}}, {name}: %{{customdata}} (%{{y:.1f}} %)<extra></extra>",
    }
