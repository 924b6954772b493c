"""Messages, read by Anthropic's own client."""

from __future__ import annotations

import json
from typing import Any

import pytest
import wire_clients as wc
import wire_replies as wr
from hypothesis import given
from hypothesis import strategies as st
from wire_hearing import ASK_MESSAGES, hear

from gyre.backends.proxy.conversation import Message, Speaker, Tool, ToolCall, ToolChoice
from gyre.backends.proxy.reply import (
    Delta,
    End,
    Failure,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from gyre.backends.proxy.wire import BadRequestError
from gyre.backends.proxy.wires import WIRES, token_count, wire_for
from gyre.trajectory.call import Finish

WIRE = WIRES["messages"]
USER = {"role": "user", "content": "hi"}
SAID = [ReasoningDelta("hm"), TextDelta("a"), ToolCallStart(0, "c0", "f"), ToolCallArguments(0, "{}"), TextDelta("b")]


@given(wr.replies(), wr.CUTS, wr.FINISHES, st.booleans())
def test_a_reply_comes_back_as_it_was_said(deltas: list[Delta], cuts: list[int], finish: Finish, stream: bool) -> None:
    end = wr.the_end(finish)
    reason = "max_tokens" if finish is Finish.LENGTH else "tool_use" if wr.calls_any(deltas) else "end_turn"
    heard, said = hear("messages", wr.ask(stream=stream), deltas, end, cuts), wr.expected(deltas, reason, end)
    if not stream:  # an object has no spaces to compare
        heard, said = wr.with_plain_arguments(heard), wr.with_plain_arguments(said)
    assert heard == said
    assert heard.runs == wr.runs(deltas, "text", "thinking", "tool_use")


def test_events_are_those_of_the_protocol() -> None:
    encoder = WIRE.encoder(wr.ask(stream=True), "r1", 1)
    data = encoder.begin(100) + b"".join(map(encoder.feed, SAID)) + encoder.end(wr.the_end())
    names = [line.removeprefix("event: ") for line in data.decode().split("\n") if line.startswith("event: ")]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    thinking = ["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"]
    call = ["content_block_start", "ping", "content_block_delta", "content_block_stop"]
    assert names == ["message_start", "ping", *thinking, *block, *call, *block, "message_delta", "message_stop"]
    events = [
        json.loads(line.removeprefix("data: ")) for line in data.decode().split("\n") if line.startswith("data: ")
    ]
    assert [event["type"] for event in events] == names
    assert events[0]["message"]["usage"]["input_tokens"] == 100
    assert [event["index"] for event in events if event["type"] == "content_block_start"] == [0, 1, 2, 3]
    assert encoder.keep_alive() == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_a_stop_sequence_is_named() -> None:
    end = wr.the_end(stop_sequence="END")
    assert hear("messages", wr.ask(stream=True), [TextDelta("a")], end).reason == "stop_sequence"
    assert json.loads(WIRE.encoder(wr.ask(), "r1", 1).whole([], end))["stop_sequence"] == "END"


@pytest.mark.parametrize("arguments", ['{"a": ', '{"a": NaN}', "[1]", "do it", '{"a": "\\ud800"}', '{"a": 1} {"b": 2}'])
def test_arguments_that_are_no_object_reach_the_client_and_come_back(arguments: str) -> None:
    deltas = [ToolCallStart(0, "c0", "f"), ToolCallArguments(0, arguments)]
    encoder = WIRE.encoder(wr.ask(stream=True), "r1", 1)
    client = wc.anthropic_client(wr.streamed(encoder, deltas, wr.the_end()), encoder.media_type)
    with client.messages.stream(**ASK_MESSAGES) as stream:
        block = stream.get_final_message().content[0]
    whole = json.loads(WIRE.encoder(wr.ask(), "r1", 1).whole(deltas, wr.the_end()))["content"][0]
    assert block.input == whole["input"] == {"malformed_arguments": arguments}
    turn = {"role": "assistant", "content": [{"type": "tool_use", "id": "c0", "name": "f", "input": block.input}]}
    assert WIRE.parse({"messages": [USER, turn]}, {}).messages[1].tool_calls == (ToolCall("c0", "f", arguments),)


def test_raw_line_ends_in_arguments_are_escaped() -> None:
    deltas = [ToolCallStart(0, "c0", "f"), ToolCallArguments(0, '{"a": "1\n2"}')]
    for stream in (False, True):
        heard = hear("messages", wr.ask(stream=stream), deltas, wr.the_end())
        assert json.loads(heard.calls[0].arguments) == {"a": "1\n2"}


@pytest.mark.parametrize("finish", [None, Finish.ABORT, Finish.ERROR])
@pytest.mark.parametrize("said", [[], SAID[:1], SAID[:3], SAID])
def test_a_broken_stream_is_an_error_to_the_client(finish: Finish | None, said: list[Delta]) -> None:
    encoder = WIRE.encoder(wr.ask(stream=True), "r1", 1)
    data = encoder.begin(3) + b"".join(map(encoder.feed, said))
    data += encoder.fail(Failure("overloaded", "engine lost")) if finish is None else encoder.end(wr.the_end(finish))
    assert b"message_stop" not in data
    client = wc.anthropic_client(data, encoder.media_type)
    with pytest.raises(wc.anthropic.APIStatusError), client.messages.stream(**ASK_MESSAGES) as stream:
        stream.until_done()


@pytest.mark.parametrize(
    ("kind", "status", "error", "type_"),
    [
        ("invalid_request", 400, "BadRequestError", "invalid_request_error"),
        ("unauthorized", 401, "AuthenticationError", "authentication_error"),
        ("forbidden", 403, "PermissionDeniedError", "permission_error"),
        ("ended", 403, "PermissionDeniedError", "permission_error"),
        ("not_found", 404, "NotFoundError", "not_found_error"),
        ("too_large", 413, "APIStatusError", "request_too_large"),
        ("too_long", 400, "BadRequestError", "invalid_request_error"),
        ("rate_limited", 429, "RateLimitError", "rate_limit_error"),
        ("overloaded", 529, "InternalServerError", "overloaded_error"),
        ("internal", 500, "InternalServerError", "api_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_reply_is_the_clients_own_error(
    kind: str, status: int, error: str, type_: str, stream: bool
) -> None:
    failure = Failure(kind, "what happened", prompt_tokens=9, max_prompt_tokens=8)
    assert WIRE.status(failure) == status
    body = WIRE.encoder(wr.ask(stream=stream), "r1", 1).fail(failure)
    assert body == WIRE.error(failure)
    client = wc.anthropic_client(body, "application/json", status=status)
    # Whether 413 and 529 have classes of their own differs from one version of the client to the next.
    with pytest.raises(getattr(wc.anthropic, error)) as caught:
        client.messages.create(**ASK_MESSAGES)
    assert caught.value.body["error"]["type"] == type_
    wanted = "prompt is too long: 9 tokens > 8 maximum" if kind == "too_long" else "what happened"
    assert caught.value.body["error"]["message"] == wanted


def test_counting_tokens_is_answered() -> None:
    client = wc.anthropic_client(token_count(12), "application/json")
    assert client.messages.count_tokens(model="m", messages=[USER]).input_tokens == 12
    assert wire_for("POST", "/x/e1/v1/messages/count_tokens") is WIRE
    assert WIRE.parse({"model": "m", "messages": [USER]}, {}).max_tokens is None


def test_a_fully_cached_prompt_is_not_counted_twice() -> None:
    end = End(Finish.STOP, Usage(100, 100, 1))
    usage = json.loads(WIRE.encoder(wr.ask(), "r1", 1).whole([], end))["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (1, 99)


def test_a_request_is_read_whole() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    body = {
        "model": "policy",
        "system": [{"type": "text", "text": "You are"}, {"type": "text", "text": "good", **mark}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a\n"}, {"type": "text", "text": "b", **mark}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "redacted_thinking", "data": "zzz"},
                    {"type": "text", "text": "I will"},
                    {"type": "tool_use", "id": "c0", "name": "f", "input": {"a": 1}},
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "first"},
                    {"type": "tool_result", "tool_use_id": "c0", "content": "out", "is_error": True},
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": "x"}, {"type": "image", "source": {}}],
                    },
                    {"type": "text", "text": "last"},
                ],
            },
            {"role": "system", "content": "late"},
            {"role": "assistant", "content": "pre"},
        ],
        "tools": [
            {"name": "f", "description": "d", "input_schema": {"type": "object"}, "defer_loading": True, **mark},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "max_tokens": 5,
        "stop_sequences": ["END"],
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "array"}}, "effort": "low"},
        "metadata": {"user_id": json.dumps({"session_id": "s1"})},
        "thinking": {"type": "adaptive"},
        "stream": True,
        "context_management": {"edits": []},
    }
    request = WIRE.parse(body, {"x-claude-code-agent-id": "a7", "user-agent": "claude-cli/2"})
    assert request.messages == (
        Message(Speaker.SYSTEM, "You are\ngood"),
        Message(Speaker.USER, "a\nb"),
        Message(Speaker.ASSISTANT, "I will", "hm", (ToolCall("c0", "f", '{"a":1}'), ToolCall("c1", "f", "{}"))),
        Message(Speaker.USER, "first"),
        Message(Speaker.TOOL, "out", tool_call_id="c0", is_error=True),
        Message(Speaker.TOOL, "x[image omitted: this model reads text only]", tool_call_id="c1"),
        Message(Speaker.USER, "last"),
        Message(Speaker.SYSTEM, "late"),
        Message(Speaker.ASSISTANT, "pre"),
    )
    assert request.tools == (Tool("f", "d", {"type": "object"}),)
    assert request.tool_choice == ToolChoice("required")
    assert not request.parallel_tool_calls
    assert (request.max_tokens, request.stop, request.json_schema) == (5, ("END",), {"type": "array"})
    assert request.stream
    assert request.labels == {
        "user_agent": "claude-cli/2",
        "thread": "a7",
        "agent": "a7",
        "session": "s1",
        "reasoning_effort": "low",
    }


def test_marks_for_a_cache_and_splits_of_blocks_do_not_change_what_is_read() -> None:
    split = [{"type": "text", "text": "a\n", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]
    one, other = ({"messages": [{"role": "user", "content": content}]} for content in (split, "a\nb"))
    assert WIRE.parse(one, {}).messages == WIRE.parse(other, {}).messages


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"messages": None}, "messages is missing or empty"),
        ({"messages": [{"role": "tool", "content": "x"}]}, r"messages\[0\].role must be user, assistant or system"),
        (
            {"messages": [{"role": "user", "content": {}}]},
            r"messages\[0\].content must be a string or a list of blocks",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            r"messages\[0\].content\[0\].type is 'image'",
        ),
        ({"system": 3}, "system must be a string or a list of blocks, not a number"),
        ({"tools": [{"name": "f"}]}, r"tools\[0\].input_schema is missing"),
        ({"tool_choice": "auto"}, "tool_choice must be an object, not a string"),
        ({"tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name is 'g', which is not among tools"),
    ],
)
def test_a_bad_request_names_the_field(more: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        WIRE.parse({"messages": [USER]} | more, {})
