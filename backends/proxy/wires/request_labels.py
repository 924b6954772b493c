"""What a request says of itself beside the conversation: which session, thread and agent it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from .fields import Fields

# Label, and the headers that carry it: the first that is there.
_HEADERS: Final = (
    ("user_agent", ("user-agent",)),
    ("session", ("x-claude-code-session-id", "session-id", "x-session-id", "x-litellm-session-id")),
    ("thread", ("x-claude-code-agent-id", "thread-id", "x-session-id")),
    ("parent_thread", ("x-codex-parent-thread-id", "x-parent-session-id")),
    ("agent", ("x-claude-code-agent-id", "x-openai-subagent")),
    ("window", ("x-codex-window-id",)),
    ("title", ("x-title",)),
    ("originator", ("originator",)),
    ("attempt", ("x-stainless-retry-count",)),
)
# Label, and the fields of the body.
_FIELDS: Final = (
    ("session", "prompt_cache_key"),
    ("reasoning_effort", "reasoning_effort"),
)


def labels(fields: Fields, headers: Mapping[str, str]) -> dict[str, str]:
    """Return session, thread, parent_thread, agent, kind and more, as far as headers and body name them.

    Nothing here can make a request bad: what cannot be read is left out.
    """
    found = {label: value for label, names in _HEADERS if (value := _first(headers, names))}
    for label, name in _FIELDS:
        if isinstance(value := fields.get(name), str) and value:
            found.setdefault(label, value)
    turn = _object(headers.get("x-codex-turn-metadata"))
    if isinstance(kind := turn.get("request_kind"), str):
        found["kind"] = kind
    metadata = fields.get("metadata")
    user = _object(metadata.get("user_id")) if isinstance(metadata, Mapping) else {}
    if isinstance(session := user.get("session_id"), str):
        found.setdefault("session", session)
    for nested in ("reasoning", "output_config"):
        options = fields.get(nested)
        effort = options.get("effort") if isinstance(options, Mapping) else None
        if isinstance(effort, str):
            found.setdefault("reasoning_effort", effort)
    return found


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := headers.get(name))), "")


def _object(text: object) -> Mapping[str, Any]:
    """Return the object that a string of JSON holds; nothing, of anything else."""
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}
