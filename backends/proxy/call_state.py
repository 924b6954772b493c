"""The life of one call, from a harness's request to the end of its reply."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class CallState(StrEnum):
    """Where a call stands."""

    RECEIVED = "received"  # understood and let in
    RENDERED = "rendered"  # its prompt is tokens
    QUEUED = "queued"  # no engine has given a token of it yet
    STREAMING = "streaming"
    RECORDED = "recorded"  # the whole reply stands in the log; no client has seen its end
    DELIVERED = "delivered"  # a client has
    ABORTED = "aborted"  # nobody waits for it any more
    FAILED = "failed"  # the client was told so


_ENDS: Final = frozenset({CallState.ABORTED, CallState.FAILED})
MOVES: Final[Mapping[CallState, frozenset[CallState]]] = MappingProxyType(
    {
        CallState.RECEIVED: _ENDS | {CallState.RENDERED},
        CallState.RENDERED: _ENDS | {CallState.QUEUED},
        CallState.QUEUED: _ENDS | {CallState.STREAMING},
        CallState.STREAMING: _ENDS | {CallState.RECORDED},
        CallState.RECORDED: frozenset({CallState.DELIVERED, CallState.ABORTED}),
        CallState.DELIVERED: frozenset(),
        CallState.ABORTED: frozenset({CallState.DELIVERED}),  # recorded whole, and replayed to a client that came back
        CallState.FAILED: frozenset(),
    }
)


def moved(state: CallState, to: CallState) -> CallState:
    """Return `to`.

    Raises:
        ValueError: a call cannot get there from `state`.
    """
    if to not in MOVES[state]:
        raise ValueError(f"a call cannot go from {state} to {to}")
    return to
