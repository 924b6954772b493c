"""Finds out what a chat template expects by having it write small conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..conversation import Message, Speaker, Tool, ToolCall
from .template import ChatTemplate, Habits, Render, TemplateRefusalError

_MARK: Final = "gyreprobe"
_USER: Final = Message(Speaker.USER, "question")
_TOOL: Final = Tool("look", "looks", {"type": "object", "properties": {"at": {"type": "string"}}})


def find_habits(render: Render) -> Habits:
    """Return the habits of the template behind `render`; what cannot be found out stays as `Habits` has it."""
    habits = Habits()
    if not _shows(render, habits, [Message(Speaker.USER, _MARK)]) and _shows(
        render, replace(habits, parts=True), [Message(Speaker.USER, _MARK)]
    ):
        habits = replace(habits, parts=True)
    habits = replace(habits, system=_shows(render, habits, [Message(Speaker.SYSTEM, _MARK), _USER]))
    habits = replace(habits, adjacent_users=_shows(render, habits, [_USER, Message(Speaker.USER, _MARK)]))
    answered, late = [_USER, Message(Speaker.ASSISTANT, "answer")], Message(Speaker.SYSTEM, _MARK)
    takes = (_shows(render, habits, [*answered, *messages]) for messages in ((_USER, late), (late, _USER)))
    habits = replace(habits, late_system=all(takes))
    return _of_reasoning(render, _of_calls(render, habits))


def _of_calls(render: Render, habits: Habits) -> Habits:
    raw = f'{{"at":   "{_MARK}"}}'  # spaced as no template would write it
    call = ToolCall("call_0123456789abcdefghijABCD", "look", raw)
    messages = [_USER, _calling(call), Message(Speaker.TOOL, "seen", tool_call_id=call.id)]
    for long_ids in (True, False):
        tried = replace(habits, long_ids=long_ids)
        if _shows(render, tried, messages, raw):
            return tried
        if _shows(render, replace(tried, raw_arguments=False), messages):
            return replace(tried, raw_arguments=False)
    return habits


def _of_reasoning(render: Render, habits: Habits) -> Habits:
    call = ToolCall("call_0123456789abcdefghijABCD", "look", '{"at": "x"}')
    turn = replace(_calling(call), reasoning=_MARK)
    messages = [_USER, turn, Message(Speaker.TOOL, "seen", tool_call_id=call.id)]
    for shown in (messages, [_USER, turn], [_USER, replace(turn, tool_calls=())]):
        for key in ("reasoning_content", "thinking", "reasoning", ""):
            for with_text in (True, False):
                tried = replace(habits, reasoning_key=key, calls_with_text=with_text)
                if _shows(render, tried, shown):
                    return tried
    return replace(habits, reasoning_key=None)


def _calling(call: ToolCall) -> Message:
    return Message(Speaker.ASSISTANT, "text", tool_calls=(call,))


def _shows(render: Render, habits: Habits, messages: Sequence[Message], mark: str = _MARK) -> bool:
    try:
        return mark in ChatTemplate(render, habits).text(messages, (_TOOL,), generate=False)
    except TemplateRefusalError:
        return False
