"""Which calls stay, which spans they reach first, and whose each sampled token is: answers replayed in commit order.

All arrays of calls are in commit order. Every climb stops where an earlier one went on, or is no longer than its call.
"""

from __future__ import annotations

import numpy as np

from ...arrays import BoolArray, Float32Array, Int32Array, Int64Array
from ...compiler import kernel


@kernel
def continued(parent: Int64Array, output_span: Int64Array, ended: BoolArray) -> BoolArray:
    """Whether each call stays: it `ended` in order, or one that did goes through the end of its output.

    That is the end of taking away, the deepest first, every aborted call that no other call goes through.
    """
    passed = np.zeros(len(parent), np.bool_)
    for call in range(len(output_span)):
        span = output_span[call] if ended[call] else -1
        while span >= 0 and not passed[span]:
            passed[span] = True
            span = parent[span]
    return passed[output_span]


@kernel
def first_calls(parent: Int64Array, output_span: Int64Array) -> Int64Array:
    """Row of the first call that goes through each span; -1 where none does."""
    first = np.full(len(parent), -1, np.int64)
    for call in range(len(output_span)):
        span = output_span[call]
        while span >= 0 and first[span] < 0:
            first[span] = call
            span = parent[span]
    return first


@kernel
def nearest_calls(
    parent: Int64Array, depth: Int64Array, length: Int64Array, input_span: Int64Array, output_span: Int64Array
) -> tuple[Int32Array, Int64Array]:
    """Earlier call that shares the longest prefix with each call's input, the latest on ties or -1; and its length."""
    nearest = np.full(len(input_span), -1, np.int32)
    shared = np.zeros(len(input_span), np.int64)
    last = np.full(len(parent), -1, np.int64)  # call through each span
    for call in range(len(input_span)):
        span = input_span[call]
        while span >= 0 and last[span] < 0:
            span = parent[span]
        if span >= 0:
            nearest[call] = last[span]
            shared[call] = depth[span] + length[span]
        span = output_span[call]
        while span >= 0:
            last[span] = call
            span = parent[span]
    return nearest, shared


@kernel
def claim(
    parent: Int64Array,
    depth: Int64Array,
    length: Int64Array,
    input_span: Int64Array,
    output_span: Int64Array,
    trainable: BoolArray,
    first_logprob: Int64Array,
    logprobs: Float32Array,
) -> tuple[Int32Array, int, float]:
    """Let each trainable call claim the spans of its output that no earlier one has.

    The log-probability of a call's token at depth d is `logprobs[first_logprob[call] + d]`. Returns the owner of each
    span or -1, the number of tokens that were sampled again, and their largest difference in log-probability.
    """
    owner = np.full(len(parent), -1, np.int32)
    duplicates, difference = 0, 0.0
    for call in range(len(output_span)):
        span = output_span[call] if trainable[call] else input_span[call]
        while span != input_span[call]:
            if owner[span] < 0:
                owner[span] = call
            else:
                duplicates += length[span]
                mine, theirs = first_logprob[call], first_logprob[owner[span]]
                for at in range(depth[span], depth[span] + length[span]):
                    gap = abs(np.float64(logprobs[mine + at]) - np.float64(logprobs[theirs + at]))
                    difference = max(difference, gap)
            span = parent[span]
    return owner, duplicates, difference
