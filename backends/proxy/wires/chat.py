"""OpenAI chat completions: requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..conversation import Message, Request, Speaker, Tool, ToolCall
from ..reply import Failure
from ..wire import BadRequestError
from . import openai_errors
from .arguments import json_text
from .chat_encoder import ChatEncoder
from .fields import Fields
from .json_schema import json_schema
from .openai_fields import SPEAKERS, content, function, tool_choice
from .request_labels import labels
from .sse import dump


class ChatWire:
    """`POST …/chat/completions`.

    Only functions can be called; tools of other types are left out, since nothing here would run them. `n` above 1 is
    refused. With `return_token_ids` the ids of prompt and reply come along, as vLLM gives them.
    """

    name = "chat"

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Request:
        """Read a request.

        Raises:
            BadRequestError: something needed is missing or of the wrong kind.
        """
        fields = Fields(body)
        fields.require_numbers("temperature", "top_p", "frequency_penalty", "presence_penalty", "top_logprobs")
        fields.count("seed")
        messages = tuple(_message(message) for message in fields.objects("messages"))
        if not messages:
            raise BadRequestError("messages is missing or empty: send one message or more")
        if (fields.count("n") or 1) != 1:
            raise fields.wrong("n", "1: one reply a request")
        tools = tuple(_tools(fields))
        stream_options = fields.object("stream_options")
        return Request(
            messages=messages,
            tools=tools,
            tool_choice=tool_choice(fields, tools),
            parallel_tool_calls=fields.flag("parallel_tool_calls", True),
            max_tokens=fields.limit("max_completion_tokens") or fields.limit("max_tokens"),
            stop=fields.texts("stop"),
            json_schema=json_schema(fields.object("response_format")),
            model=fields.text("model"),
            stream=fields.flag("stream", False),
            include_usage=stream_options is not None and stream_options.flag("include_usage", False),
            want_token_ids=fields.flag("return_token_ids", False),
            labels=labels(fields, headers),
        )

    def encoder(self, request: Request, reply_id: str, created_s: int) -> ChatEncoder:
        """Return a writer for one reply."""
        return ChatEncoder(request, reply_id, created_s)

    def status(self, failure: Failure) -> int:
        """Return the HTTP status of a failure before anything was sent."""
        return openai_errors.status(failure)

    def error(self, failure: Failure) -> bytes:
        """Return the JSON body that goes with it."""
        return dump(openai_errors.body(failure))


def _message(fields: Fields) -> Message:
    role = fields.needed("role")
    if role not in SPEAKERS:
        raise fields.wrong("role", "system, developer, user, assistant or tool")
    speaker = SPEAKERS[role]
    text = content(fields, "content", speaker)
    if speaker is Speaker.ASSISTANT:
        calls = tuple(_call(call) for call in fields.objects("tool_calls"))
        reasoning = fields.text("reasoning_content") or _plain(fields.get("reasoning"))
        return Message(speaker, text or fields.text("refusal"), reasoning, calls)
    return Message(speaker, text, tool_call_id=fields.text("tool_call_id") if speaker is Speaker.TOOL else "")


def _plain(value: object) -> str:
    """Return a string, or "" for the other things that some put under the same name."""
    return value if isinstance(value, str) else ""


def _call(fields: Fields) -> ToolCall:
    named = fields.object("function") or fields.object("custom")
    if named is None:
        raise fields.wrong("function", "an object with name and arguments")
    arguments = json_text(named, "input" if named.get("arguments") is None else "arguments")
    return ToolCall(fields.text("id"), named.needed("name"), arguments)


def _tools(fields: Fields) -> Iterator[Tool]:
    for tool in fields.objects("tools"):
        if tool.text("type", "function") == "function":
            yield function(tool.object("function") or tool)
