"""A figure of a page: Plotly's declarative form, with colours by token, and a line on how to read it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

_MOST_SINGLE_TICKS: Final = 16
Trace = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. `data` and `layout` are Plotly's; colours written `$name` are tokens of the page's palettes."""

    key: str
    title: str
    reading: str  # one line: how to read it
    data: list[Trace]
    layout: dict[str, Any]
    height_px: int
    wide: bool = True  # takes the page's whole width
    pointer: dict[str, Any] = field(default_factory=dict)  # what the page's script needs to name what the pointer is at


def packed(values: ArrayLike, dtype: str = "f4") -> dict[str, str]:
    """Return numbers as a typed array in base64, which Plotly reads; `dtype` is one of Plotly's short names.

    Single precision is enough for pixels: at 100 hours it tells 0.03 s apart.
    """
    array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return {"dtype": dtype, "bdata": base64.b64encode(array.tobytes()).decode()}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title that names the unit."""
    return {"title": {"text": title}, **more}


def whole_ticks(steps: int) -> dict[str, int]:
    """Return what gives an axis of steps a tick a step where there are few: left alone, Plotly puts ticks between."""
    return {"dtick": 1} if steps <= _MOST_SINGLE_TICKS else {}


def bands(count: int, gap: float) -> list[tuple[float, float]]:
    """Return the vertical domains of `count` panels from top to bottom, `gap` (a share of the whole) between them."""
    height = (1.0 - gap * (count - 1)) / count
    tops = [1.0 - index * (height + gap) for index in range(count)]
    return [(max(0.0, top - height), top) for top in tops]


def note(text: str, x: float, y: float, **more: Any) -> dict[str, Any]:
    """Return an annotation without an arrow, placed in shares of the plot unless `more` says otherwise."""
    return {"text": text, "x": x, "y": y, "xref": "paper", "yref": "paper", "showarrow": False, **more}


def panel_titles(titles: Sequence[str], domains: Sequence[tuple[float, float]]) -> list[dict[str, Any]]:
    """Return the headings of panels that lie below each other, or none for one panel."""
    if len(titles) < 2:
        return []
    return [
        note(f"<b>{title}</b>", 0.0, top, xanchor="left", yanchor="bottom", font={"size": 12})
        for title, (_, top) in zip(titles, domains, strict=True)
    ]
