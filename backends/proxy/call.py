"""One call while the proxy works on it, or has just done so."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from gyre.role import Role

from .audience import Audience
from .call_state import CallState, moved
from .conversation import Request
from .execution import Execution
from .labels import CallLabels
from .reply import End, Failure
from .share import Share
from .transcript import Transcript

DIGEST_LENGTH: Final = 16  # hexadecimal digits
_NONCE_BYTES: Final = 5


class StopReason(StrEnum):
    """Why a generation is broken off."""

    CLIENT_GONE = "client_gone"
    TIME_LIMIT = "time_limit"
    TOKEN_LIMIT = "token_limit"
    EXECUTION_ENDED = "execution_ended"
    SHUTDOWN = "shutdown"


def new_call_id(digest: str) -> str:
    """Return a name that no other call has. It ends in the digest of what was asked, by which retries find it."""
    return f"{secrets.token_hex(_NONCE_BYTES)}-{digest}"


def digest_in(call_id: str) -> str:
    """Return the digest that a call's name ends in, "" where it has none."""
    nonce, _, digest = call_id.rpartition("-")
    return digest if nonce and len(digest) == DIGEST_LENGTH else ""


@dataclass(slots=True, eq=False)
class Call:
    """A call. Several clients may listen to it."""

    id: str
    digest: str
    execution: Execution
    wire: str
    request: Request
    labels: CallLabels
    received_s: float
    transcript: Transcript = field(default_factory=Transcript)
    state: CallState = CallState.RECEIVED
    replays: int = 0
    stopped: StopReason | None = None
    stopper: Callable[[], object] | None = None  # breaks off the generation, while there is one
    audience: Audience = field(default_factory=Audience)
    share: Share = field(init=False)

    def __post_init__(self) -> None:
        """Take a step of the execution's, unless it is a side call."""
        self.share = Share(self.execution, int(self.labels.role is not Role.SIDE))

    @property
    def told(self) -> dict[str, object]:
        """What logs say of it."""
        labels = self.labels
        return {
            "execution": self.execution.id, "call": self.id, "protocol": self.wire, "state": self.state,
            "harness": labels.harness or None, "role": labels.role, "harness_thread": labels.thread or None,
        }  # fmt: skip

    def move(self, to: CallState) -> None:
        """Go on to another state.

        Raises:
            ValueError: it cannot get there from here.
        """
        self.state = moved(self.state, to)

    def fail(self, failure: Failure) -> None:
        """Tell whoever listens that there will be no reply, or no more of it."""
        self.move(CallState.FAILED)
        self.transcript.fail(failure)

    def stop(self, reason: StopReason) -> None:
        """Break the generation off. One that has ended already is let be."""
        if self.stopped is None and not self.transcript.closed:
            self.stopped = reason
            if self.stopper is not None:
                self.stopper()

    def finish(self, end: End) -> None:
        """Tell whoever listens that the reply is whole. It must stand in the log."""
        self.move(CallState.RECORDED)
        self.transcript.finish(end)
