"""Kernels that follow two contexts token by token: what they share, and what of one comes back in the other."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from ...arrays import Int32Array, Int64Array

RUN: Final = 8  # tokens that must be equal in a row to count as carried over
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)


@njit(cache=True, error_model="numpy")
def shared_prefix(
    parent: Int32Array,
    start: Int64Array,
    end: Int32Array,
    depth: Int64Array,
    node: int,
    offset: int,
    other: int,
    other_offset: int,
) -> int:
    """Return the tokens of the prefix that two tips' paths share; a tip is a node and a number of its tokens."""
    at = node
    while at >= 0 and not at <= other < end[at]:
        at = parent[at]
    if at < 0:
        return 0
    inside = start[at + 1] - start[at]
    if at == node:
        inside = min(inside, offset)
    if at == other:
        inside = min(inside, other_offset)
    return depth[at] + inside  # type: ignore[no-any-return]


@njit(cache=True, error_model="numpy")
def path_tail(
    parent: Int32Array, start: Int64Array, depth: Int64Array, tokens: Int32Array, node: int, offset: int, skip: int
) -> Int32Array:
    """Return the tokens of a tip's path after its first `skip`."""
    if node < 0:
        return np.empty(0, np.int32)
    tail = np.empty(max(0, depth[node] + offset - skip), np.int32)
    free = len(tail)
    while free > 0:
        first = max(0, skip - depth[node])
        size = offset - first
        tail[free - size : free] = tokens[start[node] + first : start[node] + offset]
        free -= size
        node = parent[node]
        if node >= 0:
            offset = start[node + 1] - start[node]
    return tail


@njit(cache=True, error_model="numpy")
def carried_count(old: Int32Array, new: Int32Array) -> int:
    """Return how many tokens of `old` lie in a run of 8 or more that stands somewhere in `new`, word for word."""
    runs = len(new) - RUN + 1
    if runs < 1 or len(old) < RUN:
        return 0
    slots = 2
    while slots < 2 * runs:
        slots *= 2
    table = np.full(slots, -1, np.int64)  # where in `new` a run begins, by its hash
    for at in range(runs):
        slot = _slot(new, at, slots)
        while table[slot] >= 0 and not _equal(new, at, new, table[slot]):
            slot = (slot + 1) & (slots - 1)
        table[slot] = at
    carried = covered = 0  # `covered`: tokens of `old` up to which all are counted
    for at in range(len(old) - RUN + 1):
        slot = _slot(old, at, slots)
        while table[slot] >= 0 and not _equal(old, at, new, table[slot]):
            slot = (slot + 1) & (slots - 1)
        if table[slot] >= 0:
            carried += at + RUN - max(at, covered)
            covered = at + RUN
    return carried


@njit(cache=True, error_model="numpy")
def _slot(tokens: Int32Array, at: int, slots: int) -> int:
    mixed = np.uint64(0)
    for place in range(RUN):
        mixed = (mixed ^ np.uint64(tokens[at + place])) * _FACTOR
        mixed ^= mixed >> _SHIFT
    return np.int64(mixed & np.uint64(slots - 1))  # type: ignore[return-value]


@njit(cache=True, error_model="numpy")
def _equal(one: Int32Array, at: int, other: Int32Array, there: int) -> bool:
    for place in range(RUN):  # noqa: SIM110  numba has no all()
        if one[at + place] != other[there + place]:
            return False
    return True
