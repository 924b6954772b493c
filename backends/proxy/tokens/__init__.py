"""Text and tokens of a conversation: chat templates, exact token histories, and replies read as they stream."""

from __future__ import annotations

from .history import History, Prompt
from .parsers import Parsers
from .renderer import Renderer
from .reply_parser import ReplyParser

__all__ = ["History", "Parsers", "Prompt", "Renderer", "ReplyParser"]
