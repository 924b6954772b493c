"""Finds the call that a request repeats, so that each is generated once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from .call import Call
from .call_state import CallState

_MOST_KEPT: Final = 4096  # finished calls, whatever their age


class Retries:
    """Calls that a client may ask for again: those that run, and for a time those that have finished.

    Pure: it has no clock. A call that failed or was given up is never repeated; it is made anew.
    """

    def __init__(self, replay_s: float, most_replays: int) -> None:
        """Keep a finished call for `replay_s`, for at most so many replays."""
        self._replay_s = replay_s
        self._most_replays = most_replays
        self._calls: dict[tuple[str, str], Call] = {}  # by execution and digest
        self._finished: OrderedDict[tuple[str, str], tuple[float, Call]] = OrderedDict()  # the oldest first

    def find(self, execution: str, digest: str, now_s: float) -> Call | None:
        """Return the call that a request with this digest repeats."""
        self._expire(now_s)
        call = self._calls.get((execution, digest))
        if call is None or call.stopped is not None or call.state is CallState.FAILED:
            return None
        if call.transcript.closed:
            if call.replays >= self._most_replays:
                return None
            call.replays += 1
        return call

    def add(self, call: Call) -> None:
        """A call has begun; it takes the place of an earlier one of the same digest."""
        self._calls[call.execution.id, call.digest] = call
        self._finished.pop((call.execution.id, call.digest), None)

    def finished(self, call: Call, now_s: float) -> None:
        """A call is whole and recorded."""
        key = call.execution.id, call.digest
        if self._calls.get(key) is call:
            self._finished[key] = now_s, call
            if len(self._finished) > _MOST_KEPT:
                self._drop(next(iter(self._finished)))

    def forget(self, call: Call) -> None:
        """There will be nothing to repeat."""
        key = call.execution.id, call.digest
        if self._calls.get(key) is call:
            self._drop(key)

    def forget_execution(self, execution: str) -> None:
        """The execution has ended."""
        for key in [key for key in self._calls if key[0] == execution]:
            self._drop(key)

    def _expire(self, now_s: float) -> None:
        while self._finished:
            key, (at_s, _) = next(iter(self._finished.items()))
            if now_s - at_s < self._replay_s:
                return
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        self._calls.pop(key, None)
        self._finished.pop(key, None)
