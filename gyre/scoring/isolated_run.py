"""How a command that ran apart ended, and what it printed."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum

from .stream import Stream


class Why(StrEnum):
    """Why a run ended."""

    EXITED = "exited"  # by itself, also by a signal
    NOT_STARTED = "not_started"
    TIME = "time"
    MEMORY = "memory"
    PROCESSES = "processes"
    FLOOD = "flood"  # of output
    STOPPED = "stopped"
    ESCAPED = "escaped"  # the process that confined it is gone: it was killed, as a rule by the command


@dataclass(frozen=True, slots=True)
class Run:
    """A command's end and what it printed."""

    why: Why
    exit_code: int | None  # -n: by signal n; None: not known
    output: Stream
    errors: Stream
    seconds: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0  # most that was seen
    left: int = 0  # processes that it had left running, which were killed
    stuck: bool = False  # a killed process did not go
    refused: str = ""  # why it was not started

    @property
    def failure(self) -> str:
        """Why its result cannot be used, in one line; empty where it ended by itself, with whatever exit code."""
        match self.why:
            case Why.EXITED if self.exit_code is not None and self.exit_code >= 0:
                return ""
            case Why.EXITED:
                return f"killed by {signal_name(-(self.exit_code or 0))}: {self.last_words}"
            case Why.NOT_STARTED:
                return f"cannot be started ({self.refused})"
            case Why.TIME:
                return f"not done within its time limit: {self.last_words}"
            case Why.MEMORY:
                return f"used more memory than its limit, {self.memory_bytes:,} bytes"
            case Why.PROCESSES:
                return "ran more processes than its limit"
            case Why.FLOOD:
                return f"printed more than its limit, {max(self.output.total, self.errors.total):,} bytes"
            case Why.ESCAPED:
                return "the process that confined it is gone"
            case Why.STOPPED:
                return "stopped"

    @property
    def out_of_time(self) -> bool:
        """Whether a limit on its time ended it."""
        return self.why is Why.TIME or self.exit_code == -signal.SIGXCPU

    @property
    def crashed(self) -> bool:
        """Whether what ran brought about its end, other than by ending or by its time: the machine did not refuse."""
        if self.why is Why.EXITED:
            return self.exit_code is None or self.exit_code < 0
        return self.why in (Why.MEMORY, Why.PROCESSES, Why.FLOOD, Why.ESCAPED)

    @property
    def last_words(self) -> str:
        """The last line that it printed, on stderr if there is one."""
        return (self.errors.last_line or self.output.last_line)[:200] or "it printed nothing"


def signal_name(number: int) -> str:
    """Return a signal's name, with what its cause mostly is."""
    hints = {signal.SIGKILL: ", perhaps for want of memory", signal.SIGXCPU: ", the CPU limit"}
    hints[signal.SIGXFSZ] = ", the limit on the size of a file"
    try:
        known = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    return known.name + hints.get(known, "")
