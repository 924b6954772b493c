"""Why a request gets no reply, or an error instead of the rest of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .reply import Failure

LOG_FAILS: Final = Failure("overloaded", "the call log cannot be written; try again later", retry_after_s=20.0)


class RefusedError(Exception):
    """The client is to be told of a failure; `status` and `headers` where HTTP has better ones than its protocol."""

    def __init__(self, failure: Failure, *, status: int | None = None, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.status = status
        self.headers = headers


def calls_take(limit: str, retry_after_s: float) -> Failure:
    """Return what a client is told whose call would pass a limit, if those that run end as they may."""
    what = f"calls that run may reach {limit}; wait for one to end, then try again"
    return Failure("rate_limited", what, retry_after_s=retry_after_s)


def too_long(tokens: int, context_tokens: int, *, at_least: bool = False) -> Failure:
    """Return what a client is told whose prompt leaves no room in the context."""
    most = context_tokens - 1
    what = f"the prompt has {'more than ' * at_least}{tokens} tokens, the model takes {most}"
    return Failure("too_long", what, prompt_tokens=tokens, max_prompt_tokens=most)
