"""Requests that real harnesses sent: each goes on, token for token, from the call that it repeats."""

from __future__ import annotations

import json
import random
import re
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokens_kit import STYLES, deltas, sampled, save_tokenizer

pytest.importorskip("transformers", reason="chat templates and tokenizers are transformers'")

from gyre.backends.proxy.conversation import Message, Request, Speaker, ToolCall
from gyre.backends.proxy.tokens import History, Renderer
from gyre.backends.proxy.wires import wire_for

QWEN3 = STYLES[0]


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return Renderer(save_tokenizer(tmp_path_factory.mktemp("qwen3"), QWEN3))


@pytest.fixture(scope="module")
def recordings(shared: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Exchanges by harness and scenario, in order."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with tarfile.open(shared / "harness" / "recordings.tar.xz") as archive:
        for member in archive:
            if member.name.endswith(".jsonl"):
                rows = [json.loads(line) for line in archive.extractfile(member) or ()]
                for key, group in groupby(rows, key=lambda row: (row["harness"], row["scenario"])):
                    found[key] = list(group)
    return found


def test_every_request_goes_on_from_the_longest_call_that_it_repeats(
    renderer: Renderer, recordings: dict[tuple[str, str], list[dict[str, Any]]]
) -> None:
    rng = random.Random(1)
    went_on = forks = 0
    for (harness, scenario), rows in recordings.items():
        history = History(renderer)
        known: list[tuple[list[Any], Any, np.ndarray]] = []  # of each call: raw messages, tools, all tokens
        for row in rows:
            request = _request(row)
            raw = row["body"].get("messages") or row["body"].get("input")
            prompt = history.prompt(request)
            repeated = [
                (len(messages), tokens)
                for messages, tools, tokens in known
                if len(messages) < len(raw) and raw[: len(messages)] == messages and tools == row["body"].get("tools")
                if _is_assistant(raw[len(messages)])
            ]
            longest = max((length for length, _ in repeated), default=0)
            expected = [tokens for length, tokens in repeated if length == longest]  # some were asked twice
            reused = prompt.input_ids[: prompt.reused_tokens]
            assert any(np.array_equal(reused, tokens) for tokens in expected or [[]]), (harness, scenario, row["seq"])
            went_on += bool(expected)
            forks += bool(known) and not expected
            turn = _reply(row["response"])
            if turn is not None:
                ids = [*sampled(renderer.tokenizer, QWEN3.speak(turn), rng), renderer.tokenizer.eos_token_id]
                history.record(prompt, ids, deltas(turn))
                known.append((raw, row["body"].get("tools"), np.append(prompt.input_ids, np.array(ids, np.int32))))
    assert went_on > 200
    assert forks < went_on / 4  # sub-agents, compactions, side calls, and harnesses that tell turns in other words


def _request(row: dict[str, Any]) -> Request:
    wire = wire_for("POST", row["path"].partition("?")[0])
    assert wire is not None
    return wire.parse(row["body"], {name.lower(): value for name, value in row["headers"]})


def _is_assistant(item: dict[str, Any]) -> bool:
    """Whether it is the model's, and not told in other words (smolagents writes calls as text)."""
    if "Calling tools:" in str(item.get("content")):
        return False
    return item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")


def _reply(text: str) -> Message | None:
    """The model's turn as the harness got it, None where it did not get all of it."""
    if text.lstrip().startswith("{"):
        body = json.loads(text)
        if "output" in body:
            return _of_items(body["output"])
        return _of_chat(body["choices"][0]["message"]) if "choices" in body else None
    events = list(_events(text))
    done = [event for event in events if event.get("type") == "response.completed"]
    if done:
        return _of_items(done[0]["response"]["output"])
    choices = [choice for event in events for choice in event.get("choices", ())]
    if not any(choice.get("finish_reason") for choice in choices):
        return None
    merged: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for delta in (choice["delta"] for choice in choices):
        merged["content"] += delta.get("content") or ""
        merged["reasoning_content"] += delta.get("reasoning_content") or ""
        for piece in delta.get("tool_calls") or ():
            if piece["index"] == len(merged["tool_calls"]):
                merged["tool_calls"].append({"id": piece["id"], "function": {"name": "", "arguments": ""}})
            function = merged["tool_calls"][piece["index"]]["function"]
            function["name"] += piece["function"].get("name") or ""
            function["arguments"] += piece["function"].get("arguments") or ""
    return _of_chat(merged)


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("data: {"):
            try:
                yield json.loads(line.removeprefix("data: "))
            except ValueError:
                return


def _of_chat(message: dict[str, Any]) -> Message:
    calls = (
        ToolCall(call["id"], call["function"]["name"], _published(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    )
    text, reasoning = message.get("content") or "", message.get("reasoning_content") or ""
    return Message(Speaker.ASSISTANT, text, reasoning, tuple(calls))


def _of_items(items: list[dict[str, Any]]) -> Message:
    text = "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])
    calls = (
        ToolCall(item["call_id"], item["name"], _published(item["arguments"]), item.get("namespace") or "")
        for item in items
        if item["type"] == "function_call"
    )
    thoughts = (item.get("content") or item["summary"] for item in items if item["type"] == "reasoning")
    reasoning = "".join(part["text"] for parts in thoughts for part in parts)
    return Message(Speaker.ASSISTANT, text, reasoning, tuple(calls))


def _published(arguments: str) -> str:
    """As the recordings' request bodies have it: the folder of the machine was taken out of those."""
    return re.sub(r"cd \S+ && ", "cd /workspace && ", arguments)
