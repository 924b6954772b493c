"""What a call that runs counts for against its execution's limits."""

from __future__ import annotations

from .execution import Execution


class Share:
    """Steps and tokens that a running call has taken, until its end is counted."""

    def __init__(self, execution: Execution, steps: int) -> None:
        """Take so many steps."""
        self._execution = execution
        self._steps = steps
        self._tokens = 0
        execution.reserved_steps += steps

    def take(self, tokens: int) -> bool:
        """Take more tokens; return whether the execution's limit is met by what is used and taken."""
        execution, limit = self._execution, self._execution.info.limits.tokens
        self._tokens += tokens
        execution.reserved_tokens += tokens
        return limit is not None and execution.tokens + execution.reserved_tokens >= limit

    def release(self) -> None:
        """Give all back; a second time nothing is left."""
        self._execution.reserved_steps -= self._steps
        self._execution.reserved_tokens -= self._tokens
        self._steps = self._tokens = 0
