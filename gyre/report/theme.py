"""Colours of the report, on light and on dark ground.

Work has a full colour, the time that it leaves idle a pale tint of the same hue: blue for serving, orange for training.
Uses that can lie side by side stay apart for readers with red-green blindness, as a test holds. Figures name colours by
`$name`; the page puts in those of the reader's ground.
"""

from __future__ import annotations

from typing import Final

from ..pages import GROUND
from .use import CellUse, GpuUse

_USES: Final[dict[str, tuple[str, str]]] = {  # (light ground, dark ground)
    CellUse.SERVING: ("#2b6cb0", "#5a9bdc"),
    GpuUse.SERVING_BUSY: ("#2b6cb0", "#5a9bdc"),
    GpuUse.SERVING_UNMETERED: ("#7fa9d4", "#416f9f"),
    GpuUse.SERVING_IDLE: ("#cfdff0", "#24364a"),
    CellUse.TRAINING: ("#dd7a0d", "#f0a03c"),
    CellUse.WAITING_FOR_SAMPLES: ("#f3dfc4", "#4d3a22"),
    CellUse.WAITING_FOR_OTHERS: ("#d8b78c", "#7d5f38"),
    CellUse.UPDATING: ("#4a1a6c", "#6d1fb8"),
    CellUse.PUBLISHING: ("#1c7a52", "#1bae8f"),
    CellUse.SWITCHING: ("#e6cb00", "#fff07d"),
    CellUse.FAILED: ("#3b3b3b", "#e0e0e0"),
}
_POLICIES: Final = (("#5b3fa0", "#a58bea"), ("#00796b", "#4db6a5"), ("#b5235d", "#ef7aa6"), ("#6b6a00", "#c5c34a"))
_DASHES: Final = ("solid", "dash", "dot", "dashdot")
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up")


def use_colour(use: str) -> str:
    """Return the token of a use's colour."""
    return f"${use}"


def policy_colour(index: int) -> str:
    """Return the token of a policy's colour, by its place in the comparison."""
    return f"$policy_{index % len(_POLICIES)}"


def policy_dash(index: int) -> str:
    """Return the line style that tells a policy apart without colour."""
    return _DASHES[index % len(_DASHES)]


def policy_symbol(index: int) -> str:
    """Return the marker that tells a policy apart without colour."""
    return _SYMBOLS[index % len(_SYMBOLS)]


def palette(dark: bool) -> dict[str, str]:
    """Return colours by token name, without the `$`."""
    colours = {str(use): pair[dark] for use, pair in _USES.items()}
    colours |= {f"policy_{index}": pair[dark] for index, pair in enumerate(_POLICIES)}
    return colours | {name: pair[dark] for name, pair in GROUND.items()}
