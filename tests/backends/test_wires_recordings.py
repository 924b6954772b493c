"""Every recorded request of real harnesses is read, and a reply to it is one to the official client."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wire_replies as wr
from wire_hearing import hear
from wire_recordings import recorded

from gyre.backends.proxy.conversation import Request, Speaker
from gyre.backends.proxy.reply import Delta, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallStart
from gyre.backends.proxy.wires import read_json, wire_for

_SAYING = ("text", "content", "output", "instructions", "arguments", "reasoning_content")


def _read(record: dict[str, Any]) -> tuple[str, Request]:
    wire = wire_for(record["method"], record["path"].partition("?")[0])
    assert wire is not None, record["path"]
    return wire.name, wire.parse(read_json(json.dumps(record["body"]).encode()), record["headers"])


def _said(value: Any, key: str = "") -> list[str]:
    """Return every string of a body that says something, without regard to the protocol's forms."""
    if isinstance(value, str):
        return [value] if key in _SAYING else []
    if isinstance(value, dict):
        return [text for name, one in value.items() for text in _said(one, name)]
    return [text for one in value for text in _said(one, key)] if isinstance(value, list) else []


def test_every_request_is_read_and_nothing_said_is_lost(shared: Path) -> None:
    records = recorded(shared)
    assert len(records) > 500
    for record in records:
        _, request = _read(record)
        read = [[m.text, m.reasoning, *(call.arguments for call in m.tool_calls)] for m in request.messages]
        all_read = "\n".join(text for texts in read for text in texts)
        body = record["body"]
        said = _said([body.get("messages"), body.get("input")]) + _said(body.get("instructions"), "instructions")
        missing = [text for text in said if text not in all_read]
        assert not missing, (record["harness"], missing[:1])
        assert request.stream == bool(body.get("stream"))
        assert request.messages[-1].speaker in (Speaker.USER, Speaker.TOOL)


def test_every_result_of_a_tool_has_its_call(shared: Path) -> None:
    for record in recorded(shared):
        _, request = _read(record)
        called = [call.id for message in request.messages for call in message.tool_calls]
        answered = [message.tool_call_id for message in request.messages if message.speaker is Speaker.TOOL]
        assert set(answered) <= set(called), record["harness"]
        assert all(called)


def test_every_tool_that_can_be_called_is_read(shared: Path) -> None:
    for record in recorded(shared):
        _, request = _read(record)
        told = []
        for tool in record["body"].get("tools") or ():
            if tool["type"] == "namespace":
                told += [(tool["name"], inner["name"]) for inner in tool["tools"]]
            elif tool["type"] == "function":
                told.append(("", tool.get("function", tool)["name"]))
        assert [(tool.namespace, tool.name) for tool in request.tools] == told


def _reply(request: Request) -> list[Delta]:
    """Make up a reply that calls the request's first tool twice."""
    deltas: list[Delta] = [
        ReasoningDelta("I sh"),
        ReasoningDelta("ould\n\ndata: go"),
        TextDelta("On"),
        TextDelta(" it 😀"),
    ]
    for index, tool in enumerate(request.tools[:1] * 2):
        deltas.append(ToolCallStart(index, f"call_{index}", tool.name))
        deltas += [ToolCallArguments(index, '{"a": '), ToolCallArguments(index, "1}")]
    return deltas


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_to_every_kind_of_request_comes_back_exactly(shared: Path, stream: bool) -> None:
    """Replies depend on no message: of requests that differ in these alone one is enough."""
    read = map(_read, recorded(shared))
    kinds = {repr((name, replace(request, messages=(), labels={}))): (name, request) for name, request in read}
    assert len(kinds) > 20
    for number, (name, request) in enumerate(kinds.values()):
        deltas, end = _reply(request), wr.the_end()
        reason = "completed" if name == "responses" else "tool_calls" if request.tools else "stop"
        asked = replace(request, stream=stream, include_usage=True)
        assert hear(name, asked, deltas, end, [number % 37 + 1]) == wr.expected(deltas, reason, end)
