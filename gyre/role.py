"""What a call does for its execution."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What a thread of calls does for its execution."""

    MAIN = "main"
    MAIN_SUMMARY = "main_summary"
    SUB_AGENT = "sub_agent"
    SUB_AGENT_SUMMARY = "sub_agent_summary"
    SIDE = "side"


TRAINED_ROLES: Final = (Role.MAIN, Role.MAIN_SUMMARY, Role.SUB_AGENT, Role.SUB_AGENT_SUMMARY)
"""Classes of paths by priority: a path of a later class is selected only when no earlier class has anything left.

Side calls (titles, topic detection) are not the task and are never trained on.
"""
