"""What OpenAI's two protocols have in common in a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..conversation import Speaker, Tool, ToolChoice
from .fields import Fields
from .named_tool import named_tool
from .text_only import omitted, refused

SPEAKERS: Final = {
    "system": Speaker.SYSTEM,
    "developer": Speaker.SYSTEM,
    "user": Speaker.USER,
    "assistant": Speaker.ASSISTANT,
    "tool": Speaker.TOOL,
    "function": Speaker.TOOL,
}
_TEXT_PARTS: Final = ("text", "input_text", "output_text", "summary_text", "reasoning_text")


def content(fields: Fields, key: str, speaker: Speaker) -> str:
    """Return a content, string or parts, as text.

    Parts of the model's own turn are joined as they are, for the turn was one text; other parts by a line's end.

    Raises:
        BadRequestError: a part that is not text, except in a tool's result, where a remark takes its place.
    """
    value = fields.get(key)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise fields.wrong(key, "a string or a list of parts")
    if not all(isinstance(part, str) for part in value):
        value = [_part(part, speaker) for part in fields.objects(key)]
    return ("" if speaker is Speaker.ASSISTANT else "\n").join(value)


def _part(part: Fields, speaker: Speaker) -> str:
    kind = part.text("type", "text")
    if kind in _TEXT_PARTS:
        return part.text("text")
    if kind == "refusal":
        return part.text("refusal")
    if kind in ("thinking", "reasoning"):
        return ""
    if speaker is Speaker.TOOL:
        return omitted(kind)
    raise refused(part, kind)


def function(fields: Fields, namespace: str = "") -> Tool:
    """Return a function tool from the object that has its name."""
    parameters = fields.mapping("parameters")
    return Tool(fields.needed("name"), fields.text("description"), parameters or {"type": "object"}, namespace)


def tool_choice(fields: Fields, tools: Iterable[Tool]) -> ToolChoice:
    """Return what `tool_choice` says; a tool that is named must be among `tools`."""
    value = fields.get("tool_choice")
    if value is None:
        return ToolChoice()
    if isinstance(value, str):
        if value not in ("auto", "required", "none"):
            raise fields.wrong("tool_choice", "auto, required, none or an object that names a tool")
        return ToolChoice(value)
    choice = Fields(value, "tool_choice", fields)
    kind = choice.text("type", "function")
    if kind == "allowed_tools":
        allowed = choice.object("allowed_tools") or choice
        return ToolChoice("required" if allowed.text("mode") == "required" else "auto")
    if kind != "function":  # a built-in tool, which is not here to be called
        return ToolChoice()
    return named_tool(choice.object("function") or choice, tools)
