"""The drawing of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

import numpy as np

from ...arrays import Int64Array
from ...pages import Figure, Trace, axis, packed
from ...role import Role
from .drops import Drop
from .lanes import Lanes, lanes
from .strips import FATE_WORDS, Fate, Strips, strips
from .theme import middle_colour, pale_colour, role_colour
from .tips import drop_tip, strip_tips
from .token_text import TokenText, printable
from .view import ROLES, TreeView

_BAR: Final = 0.66  # of a lane's height
_ROOM: Final = 0.028  # of the drawing's width, behind a selected path: for its number
_MOST_DROPS: Final = 500  # drops that are drawn
_MOST_LEAPS: Final = 25  # drops; of more the lines would cover the bars
_MOST_WITH_ROOM: Final = 40  # selected paths
_BESIDE: Final = 0.011  # of the drawing's width, from a path's end to its number
_NAMED: Final = 0.03  # of the drawing's width: shorter branches are not named beside their lane
_LEAST_NAMED_PX: Final = 13.0


def tree_figure(view: TreeView, token_text: TokenText) -> Figure:
    """Return the drawing: a bar for each branch, cut into context, sampled and trained tokens."""
    tree = view.tree
    width = int((tree.node_depth + view.node_tokens).max(initial=1))
    placed, parts = lanes(tree, _room(view, width)), strips(view)
    lane_px = min(30.0, max(7.0, 900.0 / max(1, placed.count)))
    large = [drop for drop in view.drops if drop.large]
    drops = sorted(large, key=lambda drop: -drop.dropped)[:_MOST_DROPS]
    leaps, diamonds = _drop_marks(view, placed, drops, width)
    bars = _bars(view, placed, parts, token_text)
    data = [_connectors(view, placed), *leaps, *bars, *diamonds, *_selection(view, placed, parts, width)]
    return Figure(
        key="tree",
        title="The tree of calls",
        reading=_reading(view, len(drops), len(large)),
        data=data,
        layout=_layout(view, placed, width, lane_px),
        height_px=int(placed.count * lane_px + 70),
        pointer={"fill": _BAR},
    )


def _room(view: TreeView, width: int) -> Int64Array:
    numbered = view.leaf_order > 0
    few = int(numbered.sum()) <= _MOST_WITH_ROOM
    return np.where(numbered & few, int(_ROOM * width), 0)


def _reading(view: TreeView, drops: int, of: int) -> str:
    lines = ["Each bar is a branch; calls that share a prefix share its bar."]
    if view.rows is not None:
        lines.append("Full colour is trained, hatched was sampled and is not trained, pale is context.")
        lines.append("A line below marks selected paths, a number their end, in the order of the draw.")
    else:
        lines.append("Hatched was sampled by the policy, pale is context.")
    if drops:
        leads = "; the dotted line leads to where it went on." if drops <= _MOST_LEAPS else "."
        largest = f" (shown are the {drops:,} largest of {of:,})" if drops < of else ""
        lines.append(f"At a diamond the context was cut or rewritten{largest}{leads}")
    return " ".join(lines)


def _layout(view: TreeView, placed: Lanes, width: int, lane_px: float) -> dict[str, Any]:
    named = _lane_names(view, placed, width) if lane_px >= _LEAST_NAMED_PX else {}
    return {
        "xaxis": axis("tokens along the path", range=[0, 1.035 * width], zeroline=False, showgrid=True, tickformat=","),
        "yaxis": {
            "range": [placed.count + 0.1, -0.1],
            "tickvals": [lane + 0.5 for lane in named],
            "ticktext": [escape(name) for name in named.values()],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            "ticks": "",
            "tickfont": {"size": 11},
        },
        "margin": {"l": 80, "t": 6},
        "hovermode": False,
    }


def _lane_names(view: TreeView, placed: Lanes, width: int) -> dict[int, str]:
    """Name lanes that hold one long branch by its thread, or by its role where it has none."""
    tree, names, twice = view.tree, dict[int, str](), set[int]()
    for tail, length in zip(placed.tail.tolist(), placed.length.tolist(), strict=True):
        lane, call = int(placed.node_lane[tail]), int(view.node_call[tail])
        twice |= {lane} & names.keys()
        if length >= _NAMED * width or tree.node_depth[tail] + view.node_tokens[tail] == length:
            role = int(view.node_role[tail])
            thread = tree.calls.thread[call] if call >= 0 and ROLES[role] is not Role.SIDE else ""
            names[lane] = printable(thread, 18) or view.role_word(role)
    return {lane: name for lane, name in names.items() if lane not in twice}


def _middle(placed: Lanes, nodes: Any) -> Any:
    return placed.node_lane[nodes] + 0.5


def _connectors(view: TreeView, placed: Lanes) -> Trace:
    tree, x, y = view.tree, list[float | None](), list[float | None]()
    for head in placed.head.tolist():
        parent = int(tree.node_parent[head])
        if parent >= 0:
            at = float(tree.node_depth[head])
            x += [at, at, None]
            y += [float(_middle(placed, parent)), float(_middle(placed, head)), None]
    line = {"width": 1.2, "color": "$muted"}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip", "showlegend": False}


def _bars(view: TreeView, placed: Lanes, parts: Strips, token_text: TokenText) -> list[Trace]:
    tips = strip_tips(view, parts, token_text)
    roles = view.node_role[parts.node]
    low, high = 0.5 + _BAR / 2, 0.5 - _BAR / 2
    traces = []
    for number, role in enumerate(ROLES):
        for fate in reversed(Fate):
            chosen = np.flatnonzero((roles == number) & (parts.fate == fate))
            if len(chosen):
                lane = placed.node_lane[parts.node[chosen]]
                x0 = parts.begins_at[chosen]
                box = {"x0": x0, "x1": x0 + parts.length[chosen], "y0": lane + low, "y1": lane + high}
                name = f"{view.role_word(number)}, {FATE_WORDS[fate]}"
                traces.append(_rectangles(name, role, fate, box) | {"tips": [tips[strip] for strip in chosen.tolist()]})
    return traces


def _rectangles(name: str, role: Role, fate: Fate, box: dict[str, Any]) -> Trace:
    colour = pale_colour(role) if fate is Fate.CONTEXT else role_colour(role)
    trace: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "fill": "toself",
        "fillcolor": colour,
        "line": {"width": 0, "simplify": False},
        "hoverinfo": "skip",
        "rectangles": {side: packed(values) for side, values in box.items()},
    }
    if fate is Fate.SAMPLED:
        hatch = {"shape": "/", "size": 5, "solidity": 0.35, "fgcolor": colour, "bgcolor": middle_colour(role)}
        trace["fillpattern"] = {**hatch, "fillmode": "replace"}
    return trace


def _selection(view: TreeView, placed: Lanes, parts: Strips, width: int) -> list[Trace]:
    """Return the lines below what is in a selected path, and the numbers at the paths' ends."""
    if view.rows is None:
        return []
    x, y = list[float | None](), list[float | None]()
    chosen = np.flatnonzero(parts.selected)
    below = _middle(placed, parts.node[chosen]) + _BAR / 2 + 0.09
    ends = parts.begins_at[chosen] + parts.length[chosen]
    for start, end, at in zip(parts.begins_at[chosen].tolist(), ends.tolist(), below.tolist(), strict=True):
        if x and x[-2] == start and y[-2] == at:
            x[-2] = end
        else:
            x += [start, end, None]
            y += [at, at, None]
    line = {"width": 2, "color": "$ink"}
    under = {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip", "showlegend": False}
    leaves = [int(leaf) for leaf in view.rows.leaf]
    marks = {
        "type": "scatter",
        "mode": "markers+text",
        "x": [int(view.leaf_tokens[leaf]) + _BESIDE * width for leaf in leaves],
        "y": [float(_middle(placed, int(view.tree.leaf_node[leaf]))) for leaf in leaves],
        "text": [str(number) for number in range(1, len(leaves) + 1)],
        "marker": {"symbol": "circle", "size": 17, "color": "$ink", "line": {"width": 1.5, "color": "$panel"}},
        "textfont": {"size": 10.5, "color": "$panel"},
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return [under, marks]


def _drop_marks(view: TreeView, placed: Lanes, drops: Sequence[Drop], width: int) -> tuple[list[Trace], list[Trace]]:
    """Return lines from where each earlier context ends to where the later input ends, and the diamonds there."""
    if not drops:
        return [], []
    calls = view.tree.calls
    x, y, ends = list[float | None](), list[float | None](), list[tuple[float, float]]()
    for drop in drops:
        end = float(calls.input_tokens[drop.earlier] + calls.output_tokens[drop.earlier])
        lane = float(_middle(placed, int(calls.output_node[drop.earlier])))
        ends.append((end, lane))
        x += [end, float(calls.input_tokens[drop.later]), None]
        y += [lane, float(_middle(placed, int(calls.input_node[drop.later]))), None]
    line = {"width": 1.2, "color": "$warning", "dash": "dot"}
    marker = {
        "symbol": "diamond",
        "size": 9 if len(drops) <= _MOST_LEAPS else 6,
        "color": "$warning",
        "line": {"width": 1, "color": "$panel"},
    }
    at_x, at_y = np.array(ends).T
    reach = 0.006 * width
    box = {"x0": at_x - reach, "x1": at_x + reach, "y0": at_y + 0.3, "y1": at_y - 0.3}
    spots = {"rectangles": {side: packed(values) for side, values in box.items()}, "line": {"width": 0}}
    quiet = {"type": "scatter", "hoverinfo": "skip", "showlegend": False}
    leaps = [{"mode": "lines", "x": x, "y": y, "line": line, **quiet}] if len(drops) <= _MOST_LEAPS else []
    return leaps, [
        {"mode": "markers", "x": at_x.tolist(), "y": at_y.tolist(), "marker": marker, **quiet},
        {"mode": "lines", **spots, "tips": [drop_tip(view, drop) for drop in drops], **quiet},
    ]
