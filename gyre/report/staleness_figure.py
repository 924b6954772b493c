"""How stale groups and tokens were when they were trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from ..pages import Figure, Trace, axis, note
from .comparison import RunResult
from .theme import policy_colour


def staleness_figure(runs_by_policy: Mapping[str, Sequence[RunResult]]) -> Figure:
    """Return the distributions of scheduling staleness (groups) and of token staleness, over a policy's runs."""
    traces: list[Trace] = []
    for index, (policy, runs) in enumerate(runs_by_policy.items()):
        trained = pl.concat([run.record.groups.filter(pl.col("state") == "consumed") for run in runs])
        groups = trained["staleness_dispatch"].drop_nulls().value_counts(sort=False).sort("staleness_dispatch")
        tokens = pl.concat([run.record.token_staleness for run in runs])
        tokens = tokens.group_by("staleness").agg(pl.col("tokens").sum()).sort("staleness")
        traces.append(_bars(policy, index, groups, "groups"))
        traces.append(_bars(policy, index, tokens, "tokens"))
    middle = {"xanchor": "center", "yanchor": "bottom", "font": {"size": 12}}
    return Figure(
        key="staleness",
        title="Staleness at training",
        reading="Left: version trained minus version at the group's dispatch. Right: version trained minus the version "
        "that sampled a token. Further left is fresher.",
        data=traces,
        layout={
            "barmode": "group",
            "bargap": 0.25,
            "margin": {"t": 22},
            "xaxis": axis("versions", domain=[0.0, 0.47], dtick=1, showgrid=False),
            "xaxis2": axis("versions", domain=[0.53, 1.0], dtick=1, showgrid=False, anchor="y2"),
            "yaxis": axis("share, %", rangemode="tozero", fixedrange=True),
            "yaxis2": {"anchor": "x2", "matches": "y", "showticklabels": False, "fixedrange": True},
            "annotations": [
                note("<b>groups</b>", 0.235, 1.0, **middle),
                note("<b>trained tokens</b>", 0.765, 1.0, **middle),
            ],
        },
        height_px=330,
        wide=False,
    )


def _bars(policy: str, index: int, counts: pl.DataFrame, what: str) -> Trace:
    staleness, count = counts.get_columns()
    panel = "" if what == "groups" else "2"
    whole = int(count.sum()) or 1
    return {
        "type": "bar",
        "name": policy,
        "legendgroup": policy,
        "showlegend": not panel,
        "x": staleness.to_list(),
        "y": [100 * value / whole for value in count.to_list()],
        "xaxis": f"x{panel}",
        "yaxis": f"y{panel}",
        "marker": {"color": policy_colour(index), "line": {"width": 0}},
        "hovertemplate": f"{policy}<br>%{{y:.1f}} % of {what} have a staleness of %{{x}}<extra></extra>",
    }
