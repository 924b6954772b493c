"""How an execution ended."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How an execution ended."""

    COMPLETED = "completed"
    HARNESS_TIMEOUT = "harness_timeout"
    OVERALL_TIMEOUT = "overall_timeout"
    AGENT_ERROR = "agent_error"
    ENV_SETUP_FAILED = "env_setup_failed"
    SCORE_FAILED = "score_failed"
    CANCELLED = "cancelled"
