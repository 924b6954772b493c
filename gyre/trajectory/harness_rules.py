"""What is known of each harness's sub-agents, compaction and side calls, as far as it tells a call's role."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class SummaryShape(StrEnum):
    """How a call that compacts a thread's history stands to that history."""

    APPEND = "append"  # the whole history, and the request for a summary after it
    BRANCH = "branch"  # nearly the whole history, left before its last turn
    FRESH = "fresh"  # under a preamble of its own (a prompt with the history as text, or the same without tools)


@dataclass(frozen=True, slots=True)
class HarnessRules:
    """What a harness does on the wire."""

    sub_agents: bool  # starts other agents; where False, a fresh context is a summary or main's next window
    side_calls: bool  # asks for titles and the like
    summaries: frozenset[SummaryShape]
    sequel_is_sub_agent: bool = True  # a fresh context after main's last call: a sub-agent cut short, or main again


_RULES: Final = {
    "claude-code": HarnessRules(True, True, frozenset({SummaryShape.BRANCH})),
    "codex": HarnessRules(True, False, frozenset({SummaryShape.FRESH, SummaryShape.BRANCH})),
    "opencode": HarnessRules(True, True, frozenset({SummaryShape.FRESH})),
    "qwen-code": HarnessRules(True, False, frozenset({SummaryShape.APPEND})),
    "deepagents": HarnessRules(True, False, frozenset({SummaryShape.FRESH})),
    "openhands": HarnessRules(False, False, frozenset({SummaryShape.FRESH})),
    "pi": HarnessRules(False, False, frozenset({SummaryShape.FRESH})),
}
# A wrong `side` throws away what could be trained, a wrong `sub_agent` trains on a title: an unknown harness gets no
# side calls but those that another model answered.
_UNKNOWN: Final = HarnessRules(True, False, frozenset(SummaryShape), sequel_is_sub_agent=False)


def harness_rules(harness: str) -> HarnessRules:
    """Return the rules of a harness by its name; letter case, and what follows a blank or a slash, do not count."""
    name = harness.lower().replace("_", "-").replace("/", " ").split(" ")[0]
    return _RULES.get(name, _UNKNOWN)
