"""Labels of calls, on what real harnesses sent."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("orjson", reason="the proxy needs the extra gyre[proxy]")

from gyre.backends.proxy.conversation import Message, Request, Speaker, Tool
from gyre.backends.proxy.labels import CallLabels, call_labels
from gyre.backends.proxy.wires import WIRES, wire_for
from gyre.role import Role
from gyre.trajectory.harness_rules import harness_rules

NAMES = {"codex": "codex", "openhands": "openhands", "pydantic": "pydantic-ai", "oaagents": "openai-agents"}


@pytest.fixture(scope="module")
def recordings(shared: Path) -> dict[str, list[dict[str, Any]]]:
    """Requests by harness, in the order in which they were sent."""
    found: dict[str, list[dict[str, Any]]] = {}
    with tarfile.open(shared / "harness" / "recordings.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".jsonl") else None
            if file is not None:
                lines = io.TextIOWrapper(file, "utf-8")
                found[Path(member.name).stem] = [json.loads(line) for line in lines]
    return found


def labelled(sent: dict[str, Any], harness: str = "") -> CallLabels:
    wire = wire_for("POST", sent["path"].partition("?")[0])
    assert wire is not None
    headers = {name.lower(): value for name, value in sent["headers"]}
    return call_labels(wire.parse(sent["body"], headers), harness)


def whole(recorded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [sent for sent in recorded if sent["method"] == "POST" and isinstance(sent["body"], dict)]


@pytest.mark.parametrize("harness", sorted(NAMES))
def test_harnesses_that_name_themselves(recordings: dict[str, list[dict[str, Any]]], harness: str) -> None:
    assert {labelled(sent).harness for sent in whole(recordings[harness])} == {NAMES[harness]}


@pytest.mark.parametrize("harness", ["codex", "pi", "openhands", "deepagents"])
def test_summaries_are_found_and_nothing_else_is_taken_for_one(
    recordings: dict[str, list[dict[str, Any]]], harness: str
) -> None:
    sent = whole(recordings[harness])
    for name in (harness, ""):  # told by the execution, and not
        summaries = [labelled(one, name).role is Role.MAIN_SUMMARY for one in sent]
        assert summaries == [one["role"] == "side" for one in sent]
        assert any(summaries)


def test_harnesses_without_compaction_get_no_role(recordings: dict[str, list[dict[str, Any]]]) -> None:
    for harness in ("mini", "oaagents", "oaagents-chat", "pydantic", "strands", "smolagents", "aider"):
        assert {labelled(sent).role for sent in whole(recordings[harness])} == {None}, harness


def test_codex_names_its_sub_agents_threads(recordings: dict[str, list[dict[str, Any]]]) -> None:
    sent = [one for one in whole(recordings["codex"]) if one["scenario"] == "sub"]
    labels = [labelled(one) for one in sent]
    subs = [label for label in labels if label.role is Role.SUB_AGENT]
    assert len(subs) == 3
    mains = {label.thread for label in labels if label.role is None}
    assert {label.parent_thread for label in subs} <= mains
    assert not {label.thread for label in subs} & mains


def request(*messages: Message, tools: int = 1, **labels: str) -> Request:
    return Request(messages, tuple(Tool("t", "", {}) for _ in range(tools)), labels=labels)


def said(speaker: Speaker, text: str) -> Message:
    return Message(speaker, text)


def test_what_no_recording_holds() -> None:
    """Written after what claude-code, qwen-code and opencode send."""
    user = said(Speaker.USER, "Do it.")
    summary = said(Speaker.TOOL, "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.")
    claude = request(user, summary, user_agent="claude-cli/2.1 (external, cli)")
    assert call_labels(claude).role is Role.MAIN_SUMMARY
    agent = request(user, summary, agent="a1", thread="a1", user_agent="claude-cli/2.1")
    assert call_labels(agent) == CallLabels("claude-code", "a1", "", Role.SUB_AGENT_SUMMARY)
    asked = request(user, said(Speaker.USER, "Write a <state_snapshot> now."))
    assert call_labels(asked, "qwen-code").role is Role.MAIN_SUMMARY
    kept = request(said(Speaker.USER, "<state_snapshot>\nall\n</state_snapshot>"))
    assert call_labels(kept, "qwen-code").role is None
    title = request(said(Speaker.SYSTEM, "You are a title generator. You output ONLY a thread title."), user, tools=0)
    assert call_labels(title, "opencode").role is Role.SIDE
    child = request(user, thread="s2", parent_thread="s1", user_agent="opencode/1.0")
    assert call_labels(child) == CallLabels("opencode", "s2", "s1", Role.SUB_AGENT)


def test_a_file_that_speaks_of_summaries_is_no_request_for_one_in_another_harness() -> None:
    read = request(said(Speaker.USER, "Read it."), said(Speaker.TOOL, 'PROMPT = "Respond with TEXT ONLY"'))
    assert call_labels(read, "pi").role is None


def test_names_are_those_that_the_rules_for_roles_know() -> None:
    for name in ("claude-code", "codex", "opencode", "qwen-code", "openhands"):
        assert harness_rules(name) is not harness_rules("unheard-of"), name
    assert set(WIRES) == {"chat", "messages", "responses"}
