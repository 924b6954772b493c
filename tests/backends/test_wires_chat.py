"""Chat completions, read by OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import pytest
import wire_clients as wc
import wire_replies as wr
from hypothesis import given
from hypothesis import strategies as st
from wire_hearing import hear

from gyre.backends.proxy.conversation import Message, Speaker, Tool, ToolCall, ToolChoice
from gyre.backends.proxy.reply import Delta, End, Failure, TextDelta, ToolCallArguments, ToolCallStart
from gyre.backends.proxy.wire import BadRequestError
from gyre.backends.proxy.wires import WIRES
from gyre.trajectory.call import Finish

WIRE = WIRES["chat"]
USER = {"role": "user", "content": "hi"}


@given(wr.replies(), wr.CUTS, wr.FINISHES, st.booleans())
def test_a_reply_comes_back_as_it_was_said(deltas: list[Delta], cuts: list[int], finish: Finish, stream: bool) -> None:
    end = wr.the_end(finish)
    reason = "length" if finish is Finish.LENGTH else "tool_calls" if wr.calls_any(deltas) else "stop"
    request = wr.ask(stream=stream, include_usage=True)
    assert hear("chat", request, deltas, end, cuts) == wr.expected(deltas, reason, end)


def _events(data: bytes) -> list[Any]:
    frames = [frame.removeprefix(b"data: ") for frame in data.split(b"\n\n") if frame]
    return [frame if frame == b"[DONE]" else json.loads(frame) for frame in frames]


def test_chunks_are_those_of_the_protocol() -> None:
    encoder = WIRE.encoder(wr.ask(stream=True, include_usage=True), "r1", 7)
    deltas = [TextDelta("a"), ToolCallStart(0, "c0", "f"), ToolCallArguments(0, "{}"), ToolCallStart(1, "c1", "g")]
    events = _events(wr.streamed(encoder, deltas, wr.the_end()))
    said = [event["choices"][0] for event in events[:-2]]
    assert said[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["delta"] for choice in said[1:] if choice["delta"]] == [
        {"content": "a"},
        {"tool_calls": [{"index": 0, "id": "c0", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {"tool_calls": [{"index": 1, "id": "c1", "type": "function", "function": {"name": "g", "arguments": ""}}]},
    ]
    assert [choice["finish_reason"] for choice in said] == [None] * (len(said) - 1) + ["tool_calls"]
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["total_tokens"] == 117
    assert events[-1] == b"[DONE]"
    assert {event["id"] for event in events[:-1]} == {"chatcmpl-r1"}


def test_usage_comes_only_where_it_was_asked_for() -> None:
    data = wr.streamed(WIRE.encoder(wr.ask(stream=True), "r1", 7), [TextDelta("a")], wr.the_end())
    assert b"usage" not in data


@pytest.mark.parametrize("stream", [False, True])
def test_token_ids_come_where_they_were_asked_for(stream: bool) -> None:
    request = WIRE.parse({"messages": [USER], "stream": stream, "return_token_ids": True}, {})
    end = End(Finish.STOP, wr.the_end().usage, input_ids=(1, 2), output_ids=(3,))
    encoder = WIRE.encoder(request, "r1", 7)
    if stream:
        body = _events(wr.streamed(encoder, [TextDelta("a")], end))[-2]
    else:
        body = json.loads(wr.plain(encoder, [TextDelta("a")], end))
    assert body["prompt_token_ids"] == [1, 2]
    assert body["choices"][0]["token_ids"] == [3]


@pytest.mark.parametrize("finish", [None, Finish.ABORT, Finish.ERROR])
def test_a_broken_stream_is_an_error_to_the_client_and_has_no_clean_end(finish: Finish | None) -> None:
    encoder = WIRE.encoder(wr.ask(stream=True), "r1", 7)
    data = encoder.begin(3) + encoder.feed(TextDelta("half"))
    data += encoder.fail(Failure("internal", "engine lost")) if finish is None else encoder.end(wr.the_end(finish))
    assert b"[DONE]" not in data
    client = wc.openai_client(data, encoder.media_type)
    with pytest.raises(wc.openai.APIError):
        list(client.chat.completions.create(model="m", messages=[USER], stream=True))


@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("invalid_request", 400, "BadRequestError"),
        ("unauthorized", 401, "AuthenticationError"),
        ("forbidden", 403, "PermissionDeniedError"),
        ("ended", 403, "PermissionDeniedError"),
        ("not_found", 404, "NotFoundError"),
        ("too_large", 413, "APIStatusError"),
        ("too_long", 400, "BadRequestError"),
        ("rate_limited", 429, "RateLimitError"),
        ("overloaded", 503, "InternalServerError"),
        ("internal", 500, "InternalServerError"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_reply_is_the_clients_own_error(kind: str, status: int, error: str, stream: bool) -> None:
    failure = Failure(kind, "what happened", prompt_tokens=9, max_prompt_tokens=8)
    assert WIRE.status(failure) == status
    body = WIRE.encoder(wr.ask(stream=stream), "r1", 7).fail(failure)
    assert body == WIRE.error(failure)
    client = wc.openai_client(body, "application/json", status=status)
    with pytest.raises(getattr(wc.openai, error)) as caught:
        client.chat.completions.create(model="m", messages=[USER])
    if kind == "too_long":
        assert caught.value.code == "context_length_exceeded"
        assert "maximum context length is 8 tokens" in caught.value.message
    else:
        assert "what happened" in caught.value.message


def test_a_request_is_read_whole() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    body = {
        "model": "policy",
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": "good"}]},
            USER,
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c0", "type": "function", "function": {"name": "f", "arguments": '{"a":  1}'}},
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
                ],
            },
            {"role": "tool", "tool_call_id": "c0", "content": [{"type": "text", "text": "out"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ],
        "tools": [tool, {"type": "custom", "custom": {"name": "free"}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "max_tokens": 5,
        "max_completion_tokens": 6,
        "stop": "Observation:",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array"}}},
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 1,
        "store": True,
        "reasoning_effort": "high",
        "prompt_cache_key": "s1",
        "nobody_knows": {"this": [None]},
    }
    request = WIRE.parse(body, {"user-agent": "pi/1"})
    assert request.messages == (
        Message(Speaker.SYSTEM, "be\ngood"),
        Message(Speaker.USER, "hi"),
        Message(
            Speaker.ASSISTANT,
            "",
            "hm",
            (ToolCall("c0", "f", '{"a":  1}'), ToolCall("c1", "f", '{"a":1}')),
        ),
        Message(Speaker.TOOL, "out", tool_call_id="c0"),
        Message(Speaker.ASSISTANT, "ab"),
    )
    assert request.tools == (Tool("f", "d", {"type": "object"}),)
    assert request.tool_choice == ToolChoice("required", "f")
    assert not request.parallel_tool_calls
    assert (request.max_tokens, request.stop, request.json_schema) == (6, ("Observation:",), {"type": "array"})
    assert request.stream
    assert request.include_usage
    assert request.labels == {"user_agent": "pi/1", "session": "s1", "reasoning_effort": "high"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"messages": []}, "messages is missing or empty"),
        ({"messages": "hi"}, "messages must be a list of objects, not 'hi'"),
        ({"messages": [7]}, r"messages\[0\] must be an object, not a number"),
        ({"messages": [{"role": "king", "content": "x"}]}, r"messages\[0\].role must be system, .* not 'king'"),
        ({"messages": [{"role": "user", "content": 3}]}, r"messages\[0\].content must be a string or a list of parts"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
            r"messages\[0\].content\[0\].type is 'image_url': this model reads text only",
        ),
        ({"tools": [{"type": "function", "function": {}}]}, r"tools\[0\].function.name is missing"),
        ({"tool_choice": "maybe"}, "tool_choice must be auto"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice.function.name is 'g'"),
        ({"max_tokens": "many"}, "max_tokens must be a whole number"),
        ({"n": 2}, "n must be 1"),
        ({"stream": "yes"}, "stream must be true or false"),
    ],
)
def test_a_bad_request_names_the_field(more: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        WIRE.parse({"messages": [USER]} | more, {})


def test_an_image_in_a_tools_result_leaves_a_remark() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    request = WIRE.parse({"messages": [USER, {"role": "tool", "tool_call_id": "c", "content": [image]}]}, {})
    assert request.messages[1].text == "[image_url omitted: this model reads text only]"


@given(st.sampled_from([0, -1, None]))
def test_a_limit_of_no_tokens_is_none(limit: int | None) -> None:
    assert WIRE.parse({"messages": [USER], "max_tokens": limit}, {}).max_tokens is None
