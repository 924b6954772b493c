"""Anthropic messages: requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..conversation import Message, Request, Speaker, Tool, ToolCall, ToolChoice
from ..reply import Failure
from ..wire import BadRequestError
from .arguments import json_text
from .fields import Fields
from .json_schema import json_schema
from .messages_encoder import MessagesEncoder, error_body
from .named_tool import named_tool
from .request_labels import labels
from .sse import dump
from .text_only import omitted, refused

_STATUS: Final = {
    "invalid_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "too_large": 413,
    "too_long": 400,
    "rate_limited": 429,
    "overloaded": 529,
    "ended": 403,
}
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none", "tool": "required"}


class MessagesWire:
    """`POST …/messages`, and requests of `POST …/messages/count_tokens`, which have the same body.

    Of the tools, those with a schema of their own can be called; Anthropic's predefined ones (web search, bash, a text
    editor) are left out, since nothing here would run them and the model does not know them. `defer_loading` is passed
    over: every tool is shown from the first call on, so that the prompt's beginning stays as it is.
    """

    name = "messages"

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Request:
        """Read a request.

        Raises:
            BadRequestError: something needed is missing or of the wrong kind.
        """
        fields = Fields(body)
        fields.require_numbers("temperature", "top_p", "top_k")
        turns = tuple(message for turn in fields.objects("messages") for message in _messages(turn))
        if not turns:
            raise BadRequestError("messages is missing or empty: send one message or more")
        system = _texts(fields, "system", "\n")
        tools = tuple(_tools(fields))
        choice = fields.object("tool_choice")
        config = fields.object("output_config")
        return Request(
            messages=(Message(Speaker.SYSTEM, system), *turns) if system else turns,
            tools=tools,
            tool_choice=_tool_choice(choice, tools),
            parallel_tool_calls=choice is None or not choice.flag("disable_parallel_tool_use", False),
            max_tokens=fields.limit("max_tokens"),
            stop=fields.texts("stop_sequences"),
            json_schema=json_schema((config and config.object("format")) or fields.object("output_format")),
            model=fields.text("model"),
            stream=fields.flag("stream", False),
            labels=labels(fields, headers),
        )

    def encoder(self, request: Request, reply_id: str, created_s: int) -> MessagesEncoder:
        """Return a writer for one reply; the protocol has no place for the time."""
        return MessagesEncoder(request, reply_id)

    def status(self, failure: Failure) -> int:
        """Return the HTTP status of a failure before anything was sent."""
        return _STATUS.get(failure.kind, 500)

    def error(self, failure: Failure) -> bytes:
        """Return the JSON body that goes with it."""
        return dump(error_body(failure))


def token_count(input_tokens: int) -> bytes:
    """Return the JSON body that answers `count_tokens`."""
    return dump({"input_tokens": input_tokens})


def _messages(turn: Fields) -> Iterator[Message]:
    role = turn.needed("role")
    match role:
        case "assistant":
            yield _assistant(turn)
        case "user":
            yield from _user(turn)
        case "system":
            yield Message(Speaker.SYSTEM, _texts(turn, "content", "\n"))
        case _:
            raise turn.wrong("role", "user, assistant or system")


def _blocks(fields: Fields, key: str) -> Iterator[Fields]:
    """Yield the blocks of a content; a string is one block of text."""
    value = fields.get(key)
    if isinstance(value, str):
        yield Fields({"type": "text", "text": value}, key, fields)
    elif value is not None and not isinstance(value, list):
        raise fields.wrong(key, "a string or a list of blocks")
    else:
        yield from fields.objects(key)


def _texts(fields: Fields, key: str, between: str) -> str:
    return between.join(block.text("text") for block in _blocks(fields, key))


def _assistant(turn: Fields) -> Message:
    """Read the model's own turn. Blocks of kinds that no reply from here has are passed over."""
    reasoning, text, calls = [], [], []
    for block in _blocks(turn, "content"):
        match block.text("type", "text"):
            case "text":
                text.append(block.text("text"))
            case "thinking":
                reasoning.append(block.text("thinking"))
            case "tool_use":
                calls.append(ToolCall(block.text("id"), block.needed("name"), json_text(block, "input") or "{}"))
    return Message(Speaker.ASSISTANT, "".join(text), "".join(reasoning), tuple(calls))


def _user(turn: Fields) -> Iterator[Message]:
    """Read a user's turn: results of tools, and runs of text between them.

    Adjacent blocks of text are joined as they are, as Anthropic's API does: clients put line ends where they want them.
    """
    run: list[str] = []
    for block in _blocks(turn, "content"):
        if block.text("type", "text") != "tool_result":
            run.append(_user_text(block))
            continue
        if run:
            yield Message(Speaker.USER, "".join(run))
            run = []
        result = "".join(_result_text(part) for part in _blocks(block, "content"))
        id_ = block.text("tool_use_id")
        yield Message(Speaker.TOOL, result, tool_call_id=id_, is_error=block.flag("is_error", False))
    if run:
        yield Message(Speaker.USER, "".join(run))


def _user_text(block: Fields) -> str:
    kind = block.text("type", "text")
    text = _text_of(block, kind)
    if text is None:
        raise refused(block, kind)
    return text


def _result_text(block: Fields) -> str:
    """Read a part of a tool's result; one that is not text leaves a remark."""
    kind = block.text("type", "text")
    text = _text_of(block, kind)
    return omitted(kind) if text is None else text


def _text_of(block: Fields, kind: str) -> str | None:
    """Return what a block of the user's side says; None if it is not text."""
    match kind:
        case "text":
            return block.text("text")
        case "tool_reference":
            return f"Tool {block.text('tool_name')} can be called."
        case "search_result":
            return "\n".join((block.text("title"), block.text("source"), _texts(block, "content", "\n")))
        case "document":
            source = block.object("source")
            if source is not None and source.text("type") == "text":
                return source.text("data")
            if source is not None and source.text("type") == "content":
                return _texts(source, "content", "\n")
    return None


def _tools(fields: Fields) -> Iterator[Tool]:
    for tool in fields.objects("tools"):
        schema = tool.mapping("input_schema")
        if schema is not None:
            yield Tool(tool.needed("name"), tool.text("description"), schema)
        elif tool.text("type", "custom") == "custom":
            raise tool.wrong("input_schema", "a JSON schema")


def _tool_choice(choice: Fields | None, tools: tuple[Tool, ...]) -> ToolChoice:
    if choice is None:
        return ToolChoice()
    kind = choice.text("type", "auto")
    if kind not in _CHOICES:
        raise choice.wrong("type", "auto, any, tool or none")
    if kind != "tool":
        return ToolChoice(_CHOICES[kind])
    return named_tool(choice, tools)
