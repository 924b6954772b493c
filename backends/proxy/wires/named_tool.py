"""The choice of one tool by its name."""

from __future__ import annotations

from collections.abc import Iterable

from ..conversation import Tool, ToolChoice
from ..wire import BadRequestError
from .fields import Fields


def named_tool(choice: Fields, tools: Iterable[Tool]) -> ToolChoice:
    """Return the choice of the tool that `choice` has the name of.

    Raises:
        BadRequestError: no such tool is among `tools`.
    """
    name = choice.needed("name")
    if all(tool.name != name for tool in tools):
        raise BadRequestError(f"{choice.path('name')} is {name[:80]!r}, which is not among tools")
    return ToolChoice("required", name)
