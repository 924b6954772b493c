"""What rules and scores say of each step: pass rates, and groups that teach nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..pages import Figure, axis, whole_ticks
from ..watch import StepFigures
from ..watch.figures import check_of
from .comparison import RunResult
from .theme import policy_colour, policy_dash

_MOST_CHECKS: Final = 8


def checks_figure(runs: Sequence[RunResult]) -> Figure | None:
    """Return each rule's pass rate by step, of one run; None where nothing was checked.

    Of more rules than can be told apart, those that changed most are drawn.
    """
    if len(runs) != 1:
        return None
    steps, settings = runs[0].record.health.steps, runs[0].record.health.settings
    series: dict[str, list[tuple[int, float]]] = {}
    for step in steps:
        for key, mean in step.means.items():
            if (check := check_of(key)) is not None and mean.mean is not None:
                series.setdefault(check, []).append((step.step, 100.0 * mean.mean))
    if not series:
        return None
    shown = sorted(series, key=lambda check: _moved(series[check]), reverse=True)[:_MOST_CHECKS]
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{check} (process)" if settings.is_process(check) else check,
            "x": [step for step, _ in series[check]],
            "y": [share for _, share in series[check]],
            "line": {"width": 1.8, "color": policy_colour(index), "dash": policy_dash(index + index // 4)},
            "hovertemplate": f"{check}, step %{{x}}: %{{y:.1f}} %<extra></extra>",
        }
        for index, check in enumerate(sorted(shown))
    ]
    more = f" The {_MOST_CHECKS} of {len(series)} that changed most." if len(series) > _MOST_CHECKS else ""
    return Figure(
        key="checks",
        title="Rules",
        reading=f"Share of evaluated executions that pass each check, by the step that trained them.{more} A check "
        "that falls while the score rises is a sign of reward hacking.",
        data=traces,
        layout={
            "xaxis": axis("step", showgrid=False, zeroline=False, **whole_ticks(len(steps))),
            "yaxis": axis("pass, %", range=[0, 102], fixedrange=True, zeroline=False),
        },
        height_px=330,
        wide=False,
    )


def _moved(points: Sequence[tuple[int, float]]) -> float:
    values = [value for _, value in points]
    return max(values) - min(values)


def alike_figure(runs: Sequence[RunResult]) -> Figure | None:
    """Return what scores say of each step's groups, of one run; None where no group has two scores."""
    if len(runs) != 1:
        return None
    steps = [step for step in runs[0].record.health.steps if step.scores.groups]
    if not steps:
        return None
    kinds: Mapping[str, tuple[str, Callable[[StepFigures], int]]] = {
        "all 0": ("$policy_2", lambda step: step.scores.zero),
        "all the same, other": ("$waiting_for_others", lambda step: step.scores.other),
        "all 1": ("$training", lambda step: step.scores.one),
        "scores differ": ("$serving", lambda step: step.scores.groups - step.scores.alike),
    }
    traces = [
        {
            "type": "bar",
            "name": name,
            "x": [step.step for step in steps],
            "y": [100.0 * read(step) / step.scores.groups for step in steps],
            "customdata": [read(step) for step in steps],
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": f"step %{{x}}, {name}: %{{customdata}} (%{{y:.0f}} %)<extra></extra>",
        }
        for name, (colour, read) in kinds.items()
        if any(read(step) for step in steps)
    ]
    return Figure(
        key="alike",
        title="What groups teach",
        reading="Groups that each step trained, by their scores. Only where scores differ is there an advantage: the "
        "rest costs rollout time and teaches nothing.",
        data=traces,
        layout={
            "barmode": "stack",
            "bargap": 0.1,
            "xaxis": axis("step", showgrid=False, zeroline=False, **whole_ticks(len(steps))),
            "yaxis": axis("groups, %", range=[0, 100], fixedrange=True, zeroline=False),
        },
        height_px=330,
        wide=False,
    )
