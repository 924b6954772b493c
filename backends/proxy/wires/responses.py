"""OpenAI responses: requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..conversation import Message, Request, Speaker, Tool, ToolCall
from ..reply import Failure
from ..wire import BadRequestError
from . import openai_errors
from .arguments import json_text
from .fields import Fields
from .json_schema import json_schema
from .openai_fields import SPEAKERS, content, function, tool_choice
from .request_labels import labels
from .responses_encoder import ResponsesEncoder
from .sse import dump


class ResponsesWire:
    """`POST …/responses`.

    Nothing is stored, whatever `store` says: a request that builds on a stored response is refused, for its history
    would be missing. Functions can be called, those in a namespace too; other tools (web search, code interpreter,
    free-form ones) are left out, since nothing here would run them, and so are items of a history that they left.
    """

    name = "responses"

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Request:
        """Read a request.

        Raises:
            BadRequestError: something needed is missing or of the wrong kind, or must have been stored.
        """
        fields = Fields(body)
        fields.require_numbers("temperature", "top_p", "top_logprobs")
        for stored in ("previous_response_id", "conversation", "prompt"):
            if fields.get(stored) is not None:
                raise BadRequestError(f"{stored} is set, but nothing is stored here: send the whole history in input")
        instructions = fields.text("instructions")
        messages = ((Message(Speaker.SYSTEM, instructions),) if instructions else ()) + tuple(_turns(fields))
        if not messages:
            raise BadRequestError("input is missing or empty: send a text or a list of items")
        tools = tuple(_tools(fields))
        format_ = fields.object("text")
        return Request(
            messages=messages,
            tools=tools,
            tool_choice=tool_choice(fields, tools),
            parallel_tool_calls=fields.flag("parallel_tool_calls", True),
            max_tokens=fields.limit("max_output_tokens"),
            json_schema=json_schema(format_ and format_.object("format")),
            model=fields.text("model"),
            stream=fields.flag("stream", False),
            labels=labels(fields, headers),
        )

    def encoder(self, request: Request, reply_id: str, created_s: int) -> ResponsesEncoder:
        """Return a writer for one reply."""
        return ResponsesEncoder(request, reply_id, created_s)

    def status(self, failure: Failure) -> int:
        """Return the HTTP status of a failure before anything was sent."""
        return openai_errors.status(failure)

    def error(self, failure: Failure) -> bytes:
        """Return the JSON body that goes with it."""
        return dump(openai_errors.body(failure))


class _Turn:
    """The model's turn, put together from the items that it was sent out as."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[ToolCall] = []

    def message(self) -> Message:
        return Message(Speaker.ASSISTANT, "".join(self.text), "".join(self.reasoning), tuple(self.calls))


def _turns(fields: Fields) -> Iterator[Message]:
    """Yield the messages of `input`; the model's items that stand side by side are one turn."""
    items = fields.get("input")
    if isinstance(items, str):
        yield Message(Speaker.USER, items)
        return
    if items is not None and not isinstance(items, list):
        raise fields.wrong("input", "a string or a list of items")
    turn: _Turn | None = None
    for item in fields.objects("input"):
        message = _outside(item)
        if message is None:
            turn = turn or _Turn()
            _inside(item, turn)
        else:
            if turn is not None:
                yield turn.message()
                turn = None
            yield message
    if turn is not None:
        yield turn.message()


def _kind(item: Fields) -> str:
    return item.text("type", "message")


def _outside(item: Fields) -> Message | None:
    """Read an item that is not of the model's turn; None if it is of it."""
    match _kind(item):
        case "message":
            role = item.needed("role")
            if role not in SPEAKERS:
                raise item.wrong("role", "system, developer, user or assistant")
            speaker = SPEAKERS[role]
            return None if speaker is Speaker.ASSISTANT else Message(speaker, content(item, "content", speaker))
        case "function_call_output" | "custom_tool_call_output":
            return Message(Speaker.TOOL, content(item, "output", Speaker.TOOL), tool_call_id=item.text("call_id"))
        case "item_reference":
            raise BadRequestError(f"{item.path()} refers to a stored item, but nothing is stored here: send it whole")
        case _:
            return None


def _inside(item: Fields, turn: _Turn) -> None:
    """Add an item of the model's turn; kinds that no reply from here has are passed over."""
    match _kind(item):
        case "message":
            turn.text.append(content(item, "content", Speaker.ASSISTANT))
        case "reasoning":
            turn.reasoning.append(
                content(item, "content", Speaker.ASSISTANT) or content(item, "summary", Speaker.ASSISTANT)
            )
        case "function_call" | "custom_tool_call" as kind:
            arguments = json_text(item, "arguments" if kind == "function_call" else "input")
            call = ToolCall(item.text("call_id"), item.needed("name"), arguments, item.text("namespace"))
            turn.calls.append(call)


def _tools(fields: Fields) -> Iterator[Tool]:
    for tool in fields.objects("tools"):
        match tool.text("type", "function"):
            case "function":
                yield function(tool)
            case "namespace":
                namespace = tool.needed("name")
                for inner in tool.objects("tools"):
                    if inner.text("type", "function") == "function":
                        yield function(inner, namespace)
