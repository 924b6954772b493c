"""Replies as the official clients hear them, streamed and whole; every event and body is checked strictly."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from wire_clients import anthropic, anthropic_client, openai, openai_client, strict
from wire_replies import Call, Heard, plain, streamed

from gyre.backends.proxy.conversation import Request
from gyre.backends.proxy.reply import Delta, End
from gyre.backends.proxy.wires import WIRES

ASK_CHAT: Final = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
ASK_MESSAGES: Final = {**ASK_CHAT, "max_tokens": 9}
ASK_RESPONSES: Final = {"model": "m", "input": "hi"}


def hear(name: str, request: Request, deltas: Sequence[Delta], end: End, cuts: Sequence[int] = ()) -> Heard:
    """Send a reply by protocol `name` in pieces of the sizes `cuts`; return what the official client made of it."""
    encoder = WIRES[name].encoder(request, "r1", 1)
    data = (streamed if request.stream else plain)(encoder, deltas, end)
    return understood(name, data, encoder.media_type, cuts, stream=request.stream)


def understood(name: str, data: bytes, media_type: str, cuts: Sequence[int] = (), *, stream: bool) -> Heard:
    """Return what the official client makes of a reply's bytes."""
    connect = anthropic_client if name == "messages" else openai_client
    return _HEARING[name, stream](connect(data, media_type, cuts))


def _chat(completion: Any) -> Heard:
    message, usage = completion.choices[0].message, completion.usage
    calls = tuple(Call(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or ())
    reasoning = getattr(message, "reasoning_content", "")
    tokens = (0, 0, 0)
    if usage is not None:  # a stream has it only where it was asked for
        tokens = (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens)
    return Heard(message.content or "", reasoning, calls, completion.choices[0].finish_reason, tokens)


def _chat_whole(client: Any) -> Heard:
    completion = client.chat.completions.create(**ASK_CHAT)
    strict(openai.types.chat.ChatCompletion, completion)
    return _chat(completion)


def _chat_stream(client: Any) -> Heard:
    for chunk in client.chat.completions.create(**ASK_CHAT, stream=True):
        strict(openai.types.chat.ChatCompletionChunk, chunk)
    with client.chat.completions.stream(**ASK_CHAT) as stream:
        list(stream)
        return _chat(stream.current_completion_snapshot)


def _messages(message: Any, arguments: dict[int, str] | None = None) -> Heard:
    """Add up the blocks of a message; `arguments` are those of a stream, as they came, by block."""
    text, reasoning, calls = "", "", []
    for index, block in enumerate(message.content):
        if block.type == "text":
            text += block.text
        elif block.type == "thinking":
            reasoning += block.thinking
            assert block.signature
        else:
            raw = json.dumps(block.input) if arguments is None else arguments[index]
            assert block.input == json.loads(raw or "{}")
            calls.append(Call(block.id, block.name, raw))
    cached = message.usage.cache_read_input_tokens
    tokens = (message.usage.input_tokens + cached, cached, message.usage.output_tokens)
    runs = tuple(block.type for block in message.content)
    return Heard(text, reasoning, tuple(calls), message.stop_reason, tokens, runs)


def _messages_whole(client: Any) -> Heard:
    message = client.messages.create(**ASK_MESSAGES)
    strict(anthropic.types.Message, message)
    return _messages(message)


def _messages_stream(client: Any) -> Heard:
    arguments: dict[int, str] = {}
    for event in client.messages.create(**ASK_MESSAGES, stream=True):
        strict(anthropic.types.RawMessageStreamEvent, event)
        if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            arguments[event.index] = arguments.get(event.index, "") + event.delta.partial_json
    with client.messages.stream(**ASK_MESSAGES) as stream:
        return _messages(stream.get_final_message(), arguments)


def _responses(response: Any) -> Heard:
    text, reasoning, calls = "", "", []
    for item in response.output:
        if item.type == "message":
            text += "".join(part.text for part in item.content)
        elif item.type == "reasoning":
            reasoning += "".join(part.text for part in item.summary)
        else:
            calls.append(Call(item.call_id, item.name, item.arguments))
    usage = response.usage
    tokens = (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens)
    runs = tuple(item.type for item in response.output)
    return Heard(text, reasoning, tuple(calls), response.status, tokens, runs)


def _responses_whole(client: Any) -> Heard:
    response = client.responses.create(**ASK_RESPONSES)
    strict(openai.types.responses.Response, response)
    return _responses(response)


def _responses_stream(client: Any) -> Heard:
    events = list(client.responses.create(**ASK_RESPONSES, stream=True))
    for event in events:
        strict(openai.types.responses.ResponseStreamEvent, event)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    response = events[-1].response
    heard = _responses(response)
    assert _joined(events, "output_text") == heard.text
    assert _joined(events, "reasoning_summary_text") == heard.reasoning
    assert _joined(events, "function_call_arguments") == "".join(call.arguments for call in heard.calls)
    assert [event.item for event in events if event.type == "response.output_item.done"] == response.output
    if response.status == "completed":  # the client's helper knows no other end
        with client.responses.stream(**ASK_RESPONSES) as stream:
            assert _responses(stream.get_final_response()) == heard
    return heard


def _joined(events: list[Any], name: str) -> str:
    return "".join(event.delta for event in events if event.type == f"response.{name}.delta")


_HEARING: Final[dict[tuple[str, bool], Callable[[Any], Heard]]] = {
    ("chat", False): _chat_whole,
    ("chat", True): _chat_stream,
    ("messages", False): _messages_whole,
    ("messages", True): _messages_stream,
    ("responses", False): _responses_whole,
    ("responses", True): _responses_stream,
}
