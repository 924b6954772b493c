"""Roles inferred from what real harnesses sent, against what their headers, tool lists and prompts say."""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from call_script import ScriptedCall, roles_of

from gyre.role import Role
from gyre.trajectory.call import Finish

_SUB_AGENT_PROMPT = "In order to complete the objective that the user asks of you"


@pytest.fixture(scope="module")
def recordings(shared: Path) -> tarfile.TarFile:
    """Archive with one file of recorded requests per harness."""
    archive = shared / "harness" / "recordings.tar.xz"
    if not archive.is_file():
        pytest.skip("recorded harness requests are not on this machine")
    return tarfile.open(archive)


def _requests(recordings: tarfile.TarFile, harness: str, scenario: str) -> Iterator[dict[str, Any]]:
    lines = recordings.extractfile(f"{harness}.jsonl")
    assert lines is not None
    for line in lines:
        request = json.loads(line)
        if request["scenario"] == scenario:
            yield request


def _words(value: object) -> tuple[int, ...]:
    """Token ids for any JSON value: a hash for each word of its text."""
    text = json.dumps(value, ensure_ascii=False).replace('"', ' " ').replace("\\n", " ")
    return tuple(zlib.crc32(word.encode()) & 0x7FFFFFFF for word in text.split())


_SPEAKERS = {"function_call": "assistant", "function_call_output": "tool"}


def _turn(message: dict[str, Any]) -> tuple[int, ...]:
    """A turn as chat templates write it, who speaks first. A responses item's id is not shown to the model."""
    speaker = message.get("role") or _SPEAKERS[message["type"]]
    return _words(speaker) + _words({key: value for key, value in message.items() if key not in ("id", "role")})


def _call(request: dict[str, Any]) -> tuple[ScriptedCall, Role]:
    """Return a call whose input is the tools, the messages and the cue for the next turn; and its true role."""
    body, headers = request["body"], {key.lower(): value for key, value in request["headers"]}
    messages = body.get("input") or body["messages"]
    tools = _words(body["tools"]) if body.get("tools") else ()
    context = tools + tuple(word for message in messages for word in _turn(message))
    kind, what = request["action"]
    call = ScriptedCall(
        context + _words("assistant"),
        _words([request["seq"], what]),
        Finish.TOOL_CALLS if kind == "tool" else Finish.STOP,
        headers.get("thread-id", ""),
        headers.get("x-codex-parent-thread-id", ""),
    )
    sub_agent = "x-openai-subagent" in headers or _SUB_AGENT_PROMPT in json.dumps(messages[0])
    return call, Role.SUB_AGENT if sub_agent else Role.MAIN if body.get("tools") else Role.MAIN_SUMMARY


@pytest.mark.parametrize("with_headers", [True, False])
@pytest.mark.parametrize(
    ("harness", "name", "scenario"),
    [
        ("codex", "codex", "base"),
        ("codex", "codex", "sub"),
        ("codex", "codex", "compact"),
        ("deepagents", "deepagents", "sub"),
        ("deepagents", "deepagents", "compact"),
        ("openhands", "openhands", "compact"),
        ("pi", "pi", "base"),
        ("pi", "pi", "compact"),
        ("codex", "", "compact"),
        ("deepagents", "", "sub"),
        ("deepagents", "", "compact"),
        ("openhands", "", "compact"),
    ],
)
def test_inferred_roles_are_those_that_the_requests_show(
    recordings: tarfile.TarFile, harness: str, name: str, scenario: str, with_headers: bool
) -> None:
    pairs = [_call(request) for request in _requests(recordings, harness, scenario) if request["method"] == "POST"]
    calls = [call if with_headers else replace(call, thread="", parent_thread="") for call, _ in pairs]
    assert roles_of(calls, name) == [role for _, role in pairs]
