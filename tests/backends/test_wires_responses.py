"""Responses, read by OpenAI's own client."""

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
from gyre.backends.proxy.reply import (
    Delta,
    Failure,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
)
from gyre.backends.proxy.wire import BadRequestError
from gyre.backends.proxy.wires import WIRES
from gyre.trajectory.call import Finish

WIRE = WIRES["responses"]
SAID = [ReasoningDelta("hm"), TextDelta("a"), ToolCallStart(0, "c0", "f"), ToolCallArguments(0, "{}"), TextDelta("b")]


@given(wr.replies(), wr.CUTS, wr.FINISHES, st.booleans())
def test_a_reply_comes_back_as_it_was_said(deltas: list[Delta], cuts: list[int], finish: Finish, stream: bool) -> None:
    end = wr.the_end(finish)
    heard = hear("responses", wr.ask(stream=stream), deltas, end, cuts)
    assert heard == wr.expected(deltas, "incomplete" if finish is Finish.LENGTH else "completed", end)
    assert heard.runs == wr.runs(deltas, "message", "reasoning", "function_call")


@given(wr.replies(), wr.FINISHES)
def test_streamed_and_whole_say_the_same(deltas: list[Delta], finish: Finish) -> None:
    encoder = WIRE.encoder(wr.ask(stream=True), "r1", 1)
    last = wr.streamed(encoder, deltas, wr.the_end(finish)).rstrip().rpartition(b"\ndata: ")[2]
    assert json.loads(last)["response"] == json.loads(WIRE.encoder(wr.ask(), "r1", 1).whole(deltas, wr.the_end(finish)))


def test_events_are_those_of_the_protocol() -> None:
    encoder = WIRE.encoder(wr.ask(stream=True), "r1", 1)
    data = encoder.begin(100) + b"".join(map(encoder.feed, SAID)) + encoder.end(wr.the_end())
    names = [line.removeprefix("event: ") for line in data.decode().split("\n") if line.startswith("event: ")]
    item = ("output_item.added", "output_item.done")
    part = ("content_part.added", "output_text.delta", "output_text.done", "content_part.done")
    summary = ("part.added", "text.delta", "text.done", "part.done")
    text = [item[0], *part, item[1]]
    reasoning = [item[0], *(f"reasoning_summary_{name}" for name in summary), item[1]]
    call = [item[0], "function_call_arguments.delta", "function_call_arguments.done", item[1]]
    said = ["created", "in_progress", *reasoning, *text, *call, *text, "completed"]
    assert names == [f"response.{name}" for name in said]


def test_a_call_keeps_its_namespace() -> None:
    tools = [{"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]}]
    request = WIRE.parse({"input": "hi", "tools": [*tools, {"type": "web_search"}]}, {})
    assert request.tools == (Tool("spawn", "", {"type": "object"}, "agents"),)
    deltas = [ToolCallStart(0, "c0", "spawn", "agents"), ToolCallArguments(0, "{}")]
    call = json.loads(WIRE.encoder(request, "r1", 1).whole(deltas, wr.the_end()))["output"][0]
    assert call["namespace"] == "agents"
    back = WIRE.parse({"input": [{"role": "user", "content": "hi"}, call]}, {}).messages[1]
    assert back.tool_calls == (ToolCall("c0", "spawn", "{}", "agents"),)


@given(wr.replies())
def test_a_reply_that_is_sent_back_is_one_turn(deltas: list[Delta]) -> None:
    output = json.loads(WIRE.encoder(wr.ask(), "r1", 1).whole(deltas, wr.the_end()))["output"]
    messages = WIRE.parse({"input": [{"role": "user", "content": "hi"}, *output]}, {}).messages[1:]
    said = wr.expected(deltas, "", wr.the_end())
    calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in said.calls)
    turn = Message(Speaker.ASSISTANT, said.text, said.reasoning, calls)
    assert messages == ((turn,) if output else ())


@pytest.mark.parametrize("finish", [None, Finish.ABORT, Finish.ERROR])
@pytest.mark.parametrize("said", [[], SAID[:1], SAID[:3], SAID])
def test_a_broken_stream_is_an_error_to_the_client(finish: Finish | None, said: list[Delta]) -> None:
    encoder = WIRE.encoder(wr.ask(stream=True), "r1", 1)
    data = encoder.begin(3) + b"".join(map(encoder.feed, said))
    data += encoder.fail(Failure("internal", "engine lost")) if finish is None else encoder.end(wr.the_end(finish))
    assert b"response.completed" not in data
    assert json.loads(data.rstrip().rpartition(b"\ndata: ")[2])["response"]["status"] == "failed"
    client = wc.openai_client(data, encoder.media_type)
    with pytest.raises(wc.openai.APIError):
        list(client.responses.create(model="m", input="hi", stream=True))


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_reply_is_the_clients_own_error(stream: bool) -> None:
    failure = Failure("too_long", "", prompt_tokens=9, max_prompt_tokens=8)
    body = WIRE.encoder(wr.ask(stream=stream), "r1", 1).fail(failure)
    assert body == WIRE.error(failure)
    client = wc.openai_client(body, "application/json", status=WIRE.status(failure))
    with pytest.raises(wc.openai.BadRequestError) as caught:
        client.responses.create(model="m", input="hi")
    assert caught.value.code == "context_length_exceeded"


def test_a_request_is_read_whole() -> None:
    body = {
        "model": "policy",
        "instructions": "be good",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}], "content": None},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "function_call", "id": "fc", "call_id": "c0", "name": "f", "arguments": '{"a":  1}'},
            {"type": "web_search_call", "id": "ws", "status": "completed"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": ""},
            {"type": "function_call_output", "call_id": "c0", "output": "out"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_image", "image_url": "x"}]},
        ],
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "max_output_tokens": 5,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "array"}}, "verbosity": "low"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "prompt_cache_key": "s1",
        "client_metadata": {"anything": 1},
        "stream": True,
    }
    headers = {
        "x-codex-turn-metadata": '{"request_kind":"compaction"}',
        "thread-id": "t1",
        "x-openai-subagent": "review",
    }
    request = WIRE.parse(body, headers)
    assert request.messages == (
        Message(Speaker.SYSTEM, "be good"),
        Message(Speaker.SYSTEM, "d"),
        Message(Speaker.USER, "hi"),
        Message(Speaker.ASSISTANT, "a", "hm", (ToolCall("c0", "f", '{"a":  1}'), ToolCall("c1", "f", ""))),
        Message(Speaker.TOOL, "out", tool_call_id="c0"),
        Message(Speaker.TOOL, "[input_image omitted: this model reads text only]", tool_call_id="c1"),
    )
    assert request.tools == (Tool("f", "d", {"type": "object"}),)
    assert request.tool_choice == ToolChoice("required", "f")
    assert not request.parallel_tool_calls
    assert (request.max_tokens, request.json_schema, request.stream) == (5, {"type": "array"}, True)
    assert request.labels == {
        "thread": "t1",
        "agent": "review",
        "kind": "compaction",
        "session": "s1",
        "reasoning_effort": "high",
    }


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "input is missing or empty"),
        ({"input": 3}, "input must be a string or a list of items"),
        ({"input": "hi", "previous_response_id": "resp_1"}, "previous_response_id is set, but nothing is stored here"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, r"input\[0\] refers to a stored item"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, r"input\[0\].name is missing"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            r"input\[0\].content\[0\].type is 'input_",
        ),
    ],
)
def test_a_bad_request_names_the_field(body: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        WIRE.parse(body, {})
