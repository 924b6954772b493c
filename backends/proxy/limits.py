"""How far an execution may go, and how much a proxy takes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one execution. None: no limit."""

    steps: int | None = None  # calls of the model, side calls not counted
    tokens: int | None = None  # input and output of all its calls; histories that are read again count again
    seconds: float | None = None  # from its opening


NO_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of the service: what is beyond them is refused, and nothing grows without end."""

    body_bytes: int = 32 << 20  # of a request; as many as Anthropic takes
    body_at_once_bytes: int = 2 << 20  # read within the event loop; a larger body is read by a process of its own,
    body_workers: int = 2  # of which there are at most so many
    body_s: float = 60.0  # until it is whole
    bodies_bytes: int = 1 << 30  # of all that are being read or parsed
    calls_per_s: float = 10.0  # of an execution, in the long run,
    calls_burst: int = 100  # and at once
    calls_at_once: int = 64  # of an execution
    calls_in_all: int = 8192  # running
    executions: int = 4096  # open
    retry_after_s: float = 20.0  # what a client is told that comes too often


BOUNDS: Final = Bounds()
