"""The calls in a builder without their token ids: what a tree says of them, and what they sampled with."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ...arrays import Float32Array, Int32Array
from ...role import Role
from ..call import CallRecord, Finish
from .reserve import grown, reserved

_UNKNOWN_VERSION: Final = -1


class Entry(NamedTuple):
    """A call whose tokens are in the forest."""

    call_id: str
    sequence: int
    thread: str
    parent_thread: str
    harness: str
    model: str
    role: Role | None
    by_policy: bool
    finish: Finish
    start_s: float
    end_s: float
    sampled_row: int  # of its first output token in `Sampled`; a call of another model has no rows

    @classmethod
    def of(cls, call: CallRecord, sampled_row: int) -> Entry:
        """Keep what is known of `call`, and none of its arrays."""
        return cls(
            call.call_id,
            call.sequence,
            call.thread,
            call.parent_thread,
            call.harness,
            call.model,
            call.role,
            call.by_policy,
            call.finish,
            call.start_s,
            call.end_s,
            sampled_row,
        )


class Sampled:
    """Log-probabilities and versions of the policy's output tokens, call after call, in arrays that grow."""

    def __init__(self) -> None:
        self.logprobs: Float32Array = reserved(1 << 19, np.float32)
        self.versions: Int32Array = reserved(1 << 19, np.int32)
        self._used = 0

    def let_go(self) -> None:
        """Give the memory back; there are no rows any more."""
        self.logprobs, self.versions = np.empty(0, np.float32), np.empty(0, np.int32)
        self._used = 0

    def append(self, logprobs: Float32Array, versions: Int32Array | None) -> int:
        """Copy what one call recorded, m values each, and return the row of the first."""
        first, end = self._used, self._used + len(logprobs)
        if end > len(self.logprobs):
            self.logprobs = grown(self.logprobs, first, end)
            self.versions = grown(self.versions, first, end)
        self.logprobs[first:end] = logprobs
        self.versions[first:end] = _UNKNOWN_VERSION if versions is None else versions
        self._used = end
        return first
