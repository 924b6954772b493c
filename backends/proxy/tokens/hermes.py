"""Reasoning in <think> tags and tool calls as JSON in <tool_call> tags: what Hermes and Qwen models write."""

from __future__ import annotations

import json
import re
from typing import Final

_CALL: Final = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)


class HermesCalls:
    """Calls of known tools."""

    start = "<tool_call>"

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def begins(self, text: str) -> bool:
        return False

    def calls(self, text: str) -> list[tuple[str, str]]:
        found = []
        for block in _CALL.findall(text):
            try:
                call = json.loads(block)
                name, arguments = call["name"], call.get("arguments", {})
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
            if name in self._names:
                found.append((str(name), json.dumps(arguments, ensure_ascii=False)))
        return found

    def before(self, text: str) -> str:
        return text.partition(self.start)[0].strip()


class ThinkTags:
    """Reasoning up to </think>: from the start on, or from <think> on where the reply begins with that."""

    def __init__(self, opened: bool) -> None:
        self._reasoning = opened
        self._begun = False
        self._held = ""

    def parse_stream_chunk(self, chunk_text: str) -> tuple[str | None, str | None]:
        """Return what of the reply is known now to be reasoning and to be text."""
        text, self._held = self._held + chunk_text, ""
        if not self._begun:
            if "<think>".startswith(text.lstrip()):
                self._held = text
                return None, None
            self._begun = True
            if text.lstrip().startswith("<think>"):
                self._reasoning, text = True, text.lstrip()[len("<think>") :]
        if not self._reasoning:
            return None, text
        reasoning, end, text = text.partition("</think>")
        if end:
            self._reasoning = False
            return reasoning, text
        kept = len(reasoning) - partial(reasoning, ("</think>",))
        self._held = reasoning[kept:]
        return reasoning[:kept], None

    def parse_stream_end(self) -> tuple[str | None, str | None]:
        """Return what was held back."""
        held, self._held = self._held, ""
        return (held, None) if self._reasoning else (None, held)


def partial(text: str, marks: tuple[str, ...]) -> int:
    """Return how many of the last characters of `text` may be the start of one of `marks`, 0 if none."""
    longest = max(map(len, marks), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(mark.startswith(text[-length:]) for mark in marks if len(mark) > length):
            return length
    return 0
