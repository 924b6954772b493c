"""Who makes a call within its execution: harness, thread and, where that is evident, role.

What the tree of calls shows by itself is left to `gyre.trajectory.roles`, which knows each harness's ways; here is only
what the wire says: headers and metadata first, then the phrases by which harnesses ask for summaries and titles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gyre.role import Role

from .conversation import Message, Request, Speaker

# A phrase at the front of the user agent, or of another label, and the harness, as `gyre.trajectory.roles` names it.
_AGENTS: Final = (
    ("user_agent", "claude-cli/", "claude-code"),
    ("user_agent", "codex", "codex"),
    ("originator", "codex", "codex"),
    ("user_agent", "opencode/", "opencode"),
    ("user_agent", "qwencode/", "qwen-code"),
    ("user_agent", "pydantic-ai/", "pydantic-ai"),
    ("user_agent", "agents/python", "openai-agents"),
    ("title", "openhands", "openhands"),
    ("title", "cline", "cline"),
)
# How each harness asks for a summary: in its last message or, under a prompt of its own, in the first.
_SUMMARY: Final = {
    "claude-code": "Respond with TEXT ONLY",
    "qwen-code": "<state_snapshot>",
    "codex": "You are performing a CONTEXT CHECKPOINT COMPACTION",
    "openhands": "You are maintaining a context-aware state summary",
    "pi": "You are a context summarization assistant",
    "deepagents": "Context Extraction Assistant",
}
_ANY_SUMMARY: Final = re.compile("|".join(map(re.escape, _SUMMARY.values())))
_SUMMARY_REPLY: Final = re.compile(r"\s*<state_snapshot>.*</state_snapshot>\s*", re.DOTALL)  # comes back in the history
_TITLE: Final = re.compile(
    r"title generator|generate (?:a )?(?:short |concise |brief )?(?:session |conversation )?title"
    r"|Generate a concise, sentence-case title",
    re.IGNORECASE,
)
_SYSTEM_REACH: Final = 2000  # characters of a system message in which it says what it is for


@dataclass(frozen=True, slots=True)
class CallLabels:
    """What the wire says of a call; "" and None where it does not."""

    harness: str = ""
    thread: str = ""
    parent_thread: str = ""
    role: Role | None = None


def call_labels(request: Request, harness: str = "") -> CallLabels:
    """Return a request's labels; `harness` is what the execution says of itself, and wins."""
    labels = request.labels
    name = harness or _harness(labels)
    agent = labels.get("agent", "")
    thread = labels.get("thread", "")
    parent = labels.get("parent_thread", "")
    sub_agent = bool(agent or parent) and not agent.startswith("compact")
    return CallLabels(name, thread, parent, _role(request, name, sub_agent))


def _harness(labels: Mapping[str, str]) -> str:
    return next((name for label, front, name in _AGENTS if labels.get(label, "").lower().startswith(front)), "")


def _role(request: Request, harness: str, sub_agent: bool) -> Role | None:
    if request.labels.get("kind", "") in ("compaction", "compact") or _asks_for_summary(request, harness):
        return Role.SUB_AGENT_SUMMARY if sub_agent else Role.MAIN_SUMMARY
    if _asks_for_title(request):
        return Role.SIDE
    return Role.SUB_AGENT if sub_agent else None


def _asks_for_summary(request: Request, harness: str) -> bool:
    first, last = request.messages[0], request.messages[-1]
    if last.speaker is not Speaker.ASSISTANT and _holds_phrase(last.text, harness):
        return _SUMMARY_REPLY.fullmatch(last.text) is None
    return not request.tools and _holds_phrase(_front(first), harness)


def _holds_phrase(text: str, harness: str) -> bool:
    phrase = _SUMMARY.get(harness)
    return phrase in text if phrase is not None else _ANY_SUMMARY.search(text) is not None


def _asks_for_title(request: Request) -> bool:
    """A title is asked for in a conversation of one question, without tools."""
    asked = [message for message in request.messages if message.speaker is not Speaker.SYSTEM]
    return not request.tools and len(asked) <= 2 and any(_TITLE.search(_front(one)) for one in request.messages)


def _front(message: Message) -> str:
    return message.text[:_SYSTEM_REACH]
