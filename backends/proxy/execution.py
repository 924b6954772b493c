"""An execution, as the proxy sees it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gyre.role import Role
from gyre.trajectory.call import CallRecord

from .limits import NO_LIMITS, Bounds, Limits
from .token_bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class ExecutionInfo:
    """What is said of an execution when it is opened."""

    id: str
    group: str = ""
    harness: str = ""
    task: str = ""
    limits: Limits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class OpenedExecution:
    """What a harness needs: `base_url` (append /v1 where it wants that) and `key`."""

    id: str
    base_url: str
    key: str


@dataclass(slots=True, eq=False)
class Execution:
    """An open execution and what it has used. It has no clock: times are given, in seconds of any steady clock."""

    info: ExecutionInfo
    bucket: TokenBucket
    opened_s: float  # an execution that goes on after a restart is opened in the past
    steps: int = 0
    tokens: int = 0
    running: int = 0  # calls
    reserved_steps: int = 0  # by calls that run; see Share
    reserved_tokens: int = 0
    next_sequence: int = 0
    ended_s: float | None = None  # when it was told to end: it calls no more, and is open until that is recorded
    farewells: int = 0  # polite replies that told the harness to stop
    limit_reached: str = ""  # the first limit that it met

    @property
    def id(self) -> str:
        """Its name."""
        return self.info.id

    def elapsed_s(self, now_s: float) -> float:
        """Seconds since it was opened, until it was told to end; NaN where `now_s` is."""
        return (now_s if self.ended_s is None else min(now_s, self.ended_s)) - self.opened_s

    def limit_met(self, now_s: float) -> str:
        """Return which limit it has met, in words; "" where it may go on. What was met once stays met."""
        if not self.limit_reached:
            self.limit_reached = self._limit_met(now_s)
        return self.limit_reached

    def _limit_met(self, now_s: float) -> str:
        limits = self.info.limits
        if limits.steps is not None and self.steps >= limits.steps:
            return f"its limit of {limits.steps} steps"
        if limits.tokens is not None and self.tokens >= limits.tokens:
            return f"its limit of {limits.tokens} tokens"
        if limits.seconds is not None and self.elapsed_s(now_s) >= limits.seconds:
            return f"its limit of {limits.seconds:g} seconds"
        return ""

    def go_on(self, records: Iterable[CallRecord]) -> None:
        """Stand where an earlier process left off; the time in between does not count."""
        longest_s = 0.0
        for record in records:
            self.use(len(record.input_ids) + len(record.output_ids), record.role, delivered=record.delivered)
            self.next_sequence = max(self.next_sequence, record.sequence + 1)
            longest_s = max(longest_s, 0.0 if math.isnan(record.end_s) else record.end_s)
        self.opened_s -= longest_s

    def use(self, tokens: int, role: Role | None, *, delivered: bool = True) -> None:
        """Count a call that has ended. One that was given up took tokens, and was no step."""
        self.tokens += tokens
        self.steps += delivered and role is not Role.SIDE

    def tokens_left(self, input_tokens: int) -> int | None:
        """Return how many output tokens a call with such an input may have; None: as many as it likes."""
        limit = self.info.limits.tokens
        return None if limit is None else max(1, limit - self.tokens - self.reserved_tokens - input_tokens)

    def steps_taken(self) -> str:
        """Return the limit of steps, in words, if calls that run may meet it; "" where another call may start."""
        limit = self.info.limits.steps
        taken = limit is not None and self.reserved_steps and self.steps + self.reserved_steps >= limit
        return f"its limit of {limit} steps" if taken else ""

    def tokens_taken(self, input_tokens: int = 0) -> str:
        """Return the limit of tokens, in words, if such an input passes it by what calls that run have taken."""
        limit = self.info.limits.tokens
        used = self.tokens + self.reserved_tokens + input_tokens
        return f"its limit of {limit} tokens" if limit is not None and self.reserved_tokens and used >= limit else ""

    def seconds_left(self, now_s: float) -> float | None:
        """Return how long a call may last; None: as long as it likes."""
        limit = self.info.limits.seconds
        return None if limit is None else max(0.0, limit - self.elapsed_s(now_s))


def opened(info: ExecutionInfo, bounds: Bounds, now_s: float) -> Execution:
    """Return a fresh execution."""
    return Execution(info, TokenBucket(bounds.calls_per_s, bounds.calls_burst), now_s)
