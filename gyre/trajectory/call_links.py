"""What of one execution's calls their roles depend on: names, lengths, and where each leaves the calls before."""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import BoolArray, FloatArray, Int32Array, Int64Array
from ..role import Role
from .call import Finish


@dataclass(frozen=True, slots=True, eq=False)
class CallLinks:
    """The C calls of one execution in commit order.

    A call's context is its input followed by its output. The parent of a call is the earlier call whose context shares
    the longest prefix with the call's input (the latest such call on ties).
    """

    harness: str
    label: tuple[Role | None, ...]  # C, as the caller gave it
    thread: tuple[str, ...]  # C, "" where the harness names none
    parent_thread: tuple[str, ...]  # C
    by_policy: BoolArray  # C
    parent: Int32Array  # C, row of the parent, -1 where no token is shared
    shared_tokens: Int64Array  # C, length of the prefix shared with the parent's context
    input_tokens: Int64Array  # C
    output_tokens: Int64Array  # C
    start_s: FloatArray  # C, NaN where unknown
    end_s: FloatArray  # C
    finish: tuple[Finish, ...]  # C

    def __len__(self) -> int:
        """Number of calls C."""
        return len(self.label)
