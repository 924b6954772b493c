"""One execution's tree for people: as text for a terminal, as a page of drawings, as plain values."""

from __future__ import annotations

from .drops import Drop, DropKind, context_drops
from .facts import inspection_facts
from .page import inspection_page
from .text import inspection_text
from .token_text import TokenText
from .view import TreeView

__all__ = [
    "Drop",
    "DropKind",
    "TokenText",
    "TreeView",
    "context_drops",
    "inspection_facts",
    "inspection_page",
    "inspection_text",
]
