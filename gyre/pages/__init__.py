"""Pages of figures that need no network: one HTML file each, on light and on dark ground."""

from __future__ import annotations

from .figure import Figure, Trace, axis, bands, note, packed, panel_titles, whole_ticks
from .ground import GROUND
from .page import figure_html, offline_page

__all__ = [
    "GROUND",
    "Figure",
    "Trace",
    "axis",
    "bands",
    "figure_html",
    "note",
    "offline_page",
    "packed",
    "panel_titles",
    "whole_ticks",
]
