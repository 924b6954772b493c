"""A request in gyre's own words, whichever protocol it came by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Speaker(StrEnum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model."""

    id: str
    name: str
    arguments: str  # JSON as it came, not parsed and written again
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Of an assistant's, `reasoning` and `tool_calls` may be set; of a tool's, `tool_call_id`."""

    speaker: Speaker
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    is_error: bool = False  # of a tool's message


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON schema
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may ("auto"), must ("required", or a tool by name) or must not ("none") call a tool."""

    mode: str = "auto"
    name: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What a harness asks for."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None  # of the text that is asked for
    model: str = ""
    stream: bool = False
    include_usage: bool = False
    want_token_ids: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)  # what headers and metadata say: agent, thread, kind ...
