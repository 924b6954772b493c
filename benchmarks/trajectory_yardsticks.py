"""What the trajectory benchmarks are compared with: the least work that looks at every input token once, or at two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gyre.arrays import Int32Array
from gyre.compiler import kernel
from gyre.trajectory.call import CallRecord

BLOCK = 512  # tokens; a fixed inner loop without a way out is compiled to vector instructions


def read(calls: Sequence[CallRecord]) -> int:
    """Read every input token; returns their exclusive or."""
    return int(np.bitwise_xor.reduce([np.bitwise_xor.reduce(call.input_ids) for call in calls]))


def compare(calls: Sequence[CallRecord]) -> int:
    """Compare each input with that of the previous call of its thread; returns the tokens that they have in common."""
    previous: dict[str, Int32Array] = {}
    common = 0
    for call in calls:
        before = previous.get(call.thread)
        if before is not None:
            common += _common_prefix(before, call.input_ids)
        previous[call.thread] = call.input_ids
    return common


@kernel
def _common_prefix(left: Int32Array, right: Int32Array) -> int:
    """Length of the longest common prefix."""
    length = min(len(left), len(right))
    at = 0
    while at + BLOCK <= length:
        one, other = left[at : at + BLOCK], right[at : at + BLOCK]
        different = np.int32(0)
        for i in range(BLOCK):
            different |= one[i] ^ other[i]
        if different != 0:
            break
        at += BLOCK
    while at < length and left[at] == right[at]:
        at += 1
    return at
