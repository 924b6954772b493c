"""What is known of an execution apart from its calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """An ended execution: its group and its score."""

    execution: str
    group: str
    score: float | None = None  # None: no valid score; the execution is not trained
    harness: str = ""
    task: str = ""
    outcome: str = ""  # a word of gyre.outcome.Outcome, where known
    wall_s: float | None = None
