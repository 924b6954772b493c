"""Figures beside the drawing: how long the paths are, and what of each role is trained."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...pages import Figure, Trace, axis, packed
from .strips import FATE_WORDS, Fate
from .theme import middle_colour, pale_colour, role_colour
from .view import ROLES, TreeView

_HEIGHT_PX: Final = 300
_FEW_PATHS: Final = 12


def leaves_figure(view: TreeView) -> Figure:
    """Return the length of every path from root to leaf, the longest first."""
    order = np.argsort(-view.leaf_tokens, kind="stable")
    tokens, chosen = view.leaf_tokens[order], view.leaf_order[order] > 0
    roles = view.tree.leaf_role[order]
    place = np.arange(1, len(order) + 1)
    traces: list[Trace] = []
    for number, role in enumerate(ROLES):
        for selected in (True, False):
            mine = (roles == number) & (chosen == selected)
            if mine.any():
                word = "selected" if selected else "not selected"
                name = f"{view.role_word(number)}, {word}" if view.rows is not None else view.role_word(number)
                full = selected or view.rows is None
                traces.append(
                    {
                        "type": "bar",
                        "name": name,
                        "x": packed(place[mine]),
                        "y": packed(tokens[mine]),
                        "marker": {"color": role_colour(role) if full else pale_colour(role), "line": {"width": 0}},
                        "hovertemplate": f"{name}: %{{y:,.0f}} tokens<extra></extra>",
                    }
                )
    return Figure(
        key="leaves",
        title="Lengths of paths",
        reading="One bar is one path from a root to a leaf: what a trainer would see if every path were a sample.",
        data=traces,
        layout={
            "barmode": "overlay",
            "bargap": 0.12 if len(order) < 120 else 0,
            "xaxis": axis(
                "paths, longest first", range=[0.4, len(order) + 0.6], zeroline=False, **_whole_ticks(len(order))
            ),
            "yaxis": axis("tokens", fixedrange=True, zeroline=False, tickformat=",", rangemode="tozero"),
        },
        height_px=_HEIGHT_PX,
        wide=False,
    )


def _whole_ticks(count: int) -> dict[str, object]:
    """Return ticks at whole numbers: of few, Plotly would set some between them."""
    return {"tickformat": ",d"} | ({"dtick": 1} if count <= _FEW_PATHS else {})


def roles_figure(view: TreeView) -> Figure:
    """Return unique tokens by role: trained, sampled and not trained, context."""
    counts = role_tokens(view)
    shown = [number for number in range(len(ROLES)) if counts[number].sum()]
    words = [view.role_word(number) for number in shown]
    traces: list[Trace] = []
    for fate in reversed(Fate):
        full = [role_colour(ROLES[number]) for number in shown]
        pale = [pale_colour(ROLES[number]) for number in shown]
        middle = [middle_colour(ROLES[number]) for number in shown]
        marker: dict[str, object] = {"color": pale if fate is Fate.CONTEXT else full, "line": {"width": 0}}
        if fate is Fate.SAMPLED:
            marker["pattern"] = {"shape": "/", "size": 5, "solidity": 0.35, "fgcolor": full, "bgcolor": middle}
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": FATE_WORDS[fate],
                "y": words,
                "x": counts[shown, fate].tolist(),
                "marker": marker,
                "hovertemplate": f"%{{y}}, {FATE_WORDS[fate]}: %{{x:,}} tokens<extra></extra>",
                "showlegend": False,
            }
        )
    return Figure(
        key="roles",
        title="Unique tokens by role",
        reading="Full colour is trained, hatched was sampled and is not trained, pale is context."
        if view.rows is not None
        else "Hatched was sampled by the policy, pale is context.",
        data=traces,
        layout={
            "barmode": "stack",
            "bargap": 0.45 if len(shown) > 2 else 0.65,
            "xaxis": axis("unique tokens", zeroline=False, tickformat=","),
            "yaxis": {"autorange": "reversed", "showgrid": False, "fixedrange": True, "automargin": True, "ticks": ""},
        },
        height_px=_HEIGHT_PX,
        wide=False,
    )


def role_tokens(view: TreeView) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return unique tokens by role (rows, as in list(Role)) and fate (columns, as in `Fate`)."""
    counts = np.zeros((len(ROLES), len(Fate)), np.int64)
    owned = view.tree.node_owner >= 0
    np.add.at(counts[:, Fate.CONTEXT], view.node_role[~owned], view.node_tokens[~owned])
    np.add.at(counts[:, Fate.TRAINED], view.node_role[owned], view.node_trained[owned])
    np.add.at(counts[:, Fate.SAMPLED], view.node_role[owned], (view.node_tokens - view.node_trained)[owned])
    return counts
