"""Colours of what all pages share: paper, ink and lines, on light and on dark ground."""

from __future__ import annotations

from typing import Final

GROUND: Final[dict[str, tuple[str, str]]] = {  # (light ground, dark ground)
    "page": ("#f7f8fa", "#101317"),
    "panel": ("#ffffff", "#181c22"),
    "ink": ("#1c2430", "#e6e9ee"),
    "muted": ("#5c6675", "#98a2b1"),
    "grid": ("#e3e7ed", "#2a303a"),
    "line": ("#c3cad4", "#454d5a"),
    "warning": ("#b5235d", "#ef7aa6"),
}
