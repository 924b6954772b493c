"""The life of every execution, from dispatch to score."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from ..outcome import Outcome
from ..scoring.partial import TREATMENTS, Treatment

if TYPE_CHECKING:
    from .group_log import GroupRow

_DROPPED: Final = frozenset(outcome.value for outcome, what in TREATMENTS.items() if what is Treatment.DROP)
EXECUTIONS_SCHEMA: Final[dict[str, pl.DataType]] = {
    "execution": pl.Int64(),
    "group": pl.Int64(),
    "dispatched_s": pl.Float64(),
    "started_s": pl.Float64(),
    "finished_s": pl.Float64(),
    "ended_s": pl.Float64(),  # it finished, was lost or was cancelled; null while it is under way
    "scored_s": pl.Float64(),
    "version_started": pl.Int64(),
    "outcome": pl.String(),
    "valid": pl.Boolean(),
    "score": pl.Float64(),
    "tokens": pl.Int64(),  # sampled by the policy
    "sample_tokens": pl.Int64(),  # of the paths selected for training
    "tool_calls": pl.Int64(),
    "evaluations": pl.Int64(),  # that came back
    "failed_checks": pl.List(pl.String()),  # names, of its last evaluation
    "attempts": pl.Int64(),  # how often it was started
    "lost_reason": pl.String(),  # null for an execution that was trained or still can be
}


@dataclass(slots=True)
class ExecutionRow:
    """One execution so far. `open` while it runs or is scored; `ended` once it holds no place in the water level."""

    execution: int
    group: GroupRow
    dispatched_s: float
    started_s: float | None = None
    finished_s: float | None = None
    ended_s: float | None = None
    scored_s: float | None = None
    version_started: int | None = None
    outcome: str | None = None
    valid: bool | None = None
    score: float | None = None
    version_tokens: tuple[tuple[int, int], ...] = ()
    sample_tokens: int = 0
    tool_calls: int | None = None
    evaluations: int = 0
    failed_checks: tuple[str, ...] = ()
    attempts: int = 0
    lost_reason: str | None = None  # said by the cluster or by a cancellation
    asked: bool = False  # to start, and neither started nor ended since
    open: bool = True
    ended: bool = False
    running: bool = False
    scoring_attempt: int = 0  # the evaluation that was asked for last
    interrupted: bool = False  # the run resumed while it was open, and nothing of it was heard since

    @property
    def tokens(self) -> int:
        """Tokens that the policy sampled."""
        return sum(tokens for _, tokens in self.version_tokens)

    @property
    def given_up(self) -> bool:
        """It was lost or cancelled, or its group dropped; what still comes of it is late, not wrong."""
        return self.lost_reason is not None or self.group.dropped_reason is not None

    def why_lost(self) -> str | None:
        """Return why this execution was not and will not be trained, or None."""
        if self.lost_reason is not None:
            return self.lost_reason
        if self.group.dropped_reason is not None:
            return f"group dropped: {self.group.dropped_reason}"
        if self.open:
            return None
        if self.valid or self.outcome == Outcome.ENV_SETUP_FAILED:
            return None  # scored, or a placeholder of reward 0 stays
        if self.outcome in _DROPPED:
            return self.outcome
        return Outcome.SCORE_FAILED.value  # or no evaluation of it ever came back


def executions_frame(rows: Iterable[ExecutionRow]) -> pl.DataFrame:
    """Return executions (`EXECUTIONS_SCHEMA`) in the order of their dispatch."""
    return pl.DataFrame(
        [
            (
                row.execution,
                row.group.group,
                row.dispatched_s,
                row.started_s,
                row.finished_s,
                row.ended_s,
                row.scored_s,
                row.version_started,
                row.outcome,
                row.valid,
                row.score,
                row.tokens,
                row.sample_tokens,
                row.tool_calls,
                row.evaluations,
                row.failed_checks,
                row.attempts,
                row.why_lost(),
            )
            for row in rows
        ],
        schema=EXECUTIONS_SCHEMA,
        orient="row",
    )
