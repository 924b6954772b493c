"""Writes a conversation as text by a model's own chat template."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from ..conversation import Message, Speaker, Tool, ToolCall
from ..wire import BadRequestError

Render = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None, bool], str]


STRUCTURED: Final = frozenset({Speaker.SYSTEM, Speaker.ASSISTANT})


class Marked(Protocol):
    """See `Controls.marked`."""

    def __call__(self, value: Any, *, structure: bool = False) -> Any: ...


def _unmarked(value: Any, *, structure: bool = False) -> Any:
    return value


class TemplateRefusalError(BadRequestError):
    """The template will not write this conversation; the message says why."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What a template expects and does, where templates differ."""

    raw_arguments: bool = True  # a call's arguments as text are written as they are; else it wants them parsed
    parts: bool = False  # content as a list of parts
    reasoning_key: str | None = "reasoning_content"  # "": within the content, between tags; None: never shown
    system: bool = True  # takes a system message at all
    late_system: bool = True  # takes one after the first message
    adjacent_users: bool = True  # takes two user messages in a row
    calls_with_text: bool = True  # takes text beside reasoning in a turn that calls tools
    long_ids: bool = True  # takes tool-call ids of any length; else they are nine letters and digits


def full_name(tool: Tool | ToolCall) -> str:
    """Return the name by which the model knows a tool: namespaces are joined to it, as templates have none."""
    return f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name


class ChatTemplate:
    """A template with its habits. `render` writes messages and tools in the form of the OpenAI chat protocol.

    `marked` is applied to every text of a message or tool before the template sees it (see `Controls.marked`).
    """

    def __init__(
        self,
        render: Render,
        habits: Habits,
        marked: Marked = _unmarked,
        structured: frozenset[Speaker] = STRUCTURED,
    ) -> None:
        """`structured` are those whose text may hold tokens of structure that are not special."""
        self._render = render
        self._marked = marked
        self._structured = structured
        self.habits = habits

    def text(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, generate: bool) -> str:
        """Write the conversation; with `generate`, up to where the model's next turn begins.

        Raises:
            TemplateRefusalError: the template does not take such a conversation.
        """
        try:
            return self._render(
                [self._message(m) for m in self._fitted(messages)],
                [self._marked(_tool(t)) for t in tools] or None,
                generate,
            )
        except RecursionError as error:
            raise TemplateRefusalError(
                "messages: a tool's schema or a call's arguments are nested too deeply"
            ) from error

    def _fitted(self, messages: Sequence[Message]) -> list[Message]:
        """Bring messages into an order that the template takes: nothing is left out."""
        fitted: list[Message] = []
        for message in messages:
            takes_system = self.habits.late_system if fitted else self.habits.system
            as_user = message.speaker is Speaker.SYSTEM and not takes_system
            fits = replace(message, speaker=Speaker.USER) if as_user else message
            adjacent = bool(fitted) and fits.speaker is fitted[-1].speaker is Speaker.USER
            if adjacent and not self.habits.adjacent_users:
                fitted[-1] = replace(fitted[-1], text=f"{fitted[-1].text}\n\n{fits.text}")
            else:
                fitted.append(fits)
        return fitted

    def _message(self, message: Message) -> dict[str, Any]:
        text = self._marked(message.text, structure=message.speaker in self._structured)
        reasoning = self._marked(message.reasoning)
        fields: dict[str, Any] = {"role": message.speaker.value}
        if reasoning and text and message.tool_calls and not self.habits.calls_with_text:
            reasoning, text = f"{reasoning}\n\n{text}", ""
        if reasoning:
            if self.habits.reasoning_key:
                fields[self.habits.reasoning_key] = reasoning
            elif self.habits.reasoning_key == "":
                text = f"<think>\n{reasoning.strip()}\n</think>\n\n{text}"
        fields["content"] = [{"type": "text", "text": text}] if self.habits.parts else text
        if message.tool_calls:
            fields["tool_calls"] = [self._marked(self._call(call)) for call in message.tool_calls]
        if message.tool_call_id:
            fields["tool_call_id"] = self._marked(self._call_id(message.tool_call_id))
        return fields

    def _call(self, call: ToolCall) -> dict[str, Any]:
        arguments: Any = call.arguments
        if not self.habits.raw_arguments:
            try:
                arguments = json.loads(arguments or "{}", strict=False)
            except ValueError:
                arguments = {"arguments": arguments}
        function = {"name": full_name(call), "arguments": arguments}
        return {"id": self._call_id(call.id), "type": "function", "function": function}

    def _call_id(self, call_id: str) -> str:
        if self.habits.long_ids:
            return call_id
        return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _tool(tool: Tool) -> dict[str, Any]:
    parameters: Mapping[str, Any] = tool.parameters
    function = {"name": full_name(tool), "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}
