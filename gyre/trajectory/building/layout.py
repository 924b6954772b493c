"""Spans in their final order: depth first, neighbours that could be one node joined, tokens side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import Float32Array, Int32Array, Int64Array, row_starts
from ...compiler import kernel


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """M nodes in their final order, of the B' spans that a call goes through."""

    spans: Int64Array  # B', in the order of their tokens
    start: Int64Array  # M + 1, CSR into the tokens
    parent: Int32Array  # M, -1 at a root
    end: Int32Array  # M, exclusive index of the last node below
    depth: Int64Array  # M, tokens before the node on its path
    owner: Int32Array  # M, -1: context
    sampled_start: Int64Array  # M + 1, CSR into the tokens of owned nodes
    span_node: Int32Array  # B, node of each span, -1 where no call goes through
    span_end: Int64Array  # B, tokens of that node up to the span's end


def arrange(parent: Int64Array, length: Int64Array, first_call: Int64Array, owner: Int32Array) -> Layout:
    """Lay out the spans, of which each has a parent, a length, a first call and an owner, (B,) each."""
    alive = np.flatnonzero(first_call >= 0)
    by_first_call = alive[np.argsort(first_call[alive], kind="stable")]
    spans = _depth_first(parent, by_first_call)
    node = np.full(len(parent), -1, np.int32)
    end_in_node = np.zeros(len(parent), np.int64)
    count = _join(parent, length, owner, spans, node, end_in_node)
    table = np.empty((3, count), np.int64)
    node_parent, node_end, node_owner = np.empty((3, count), np.int32)
    _describe(parent, owner, spans, node, end_in_node, table, node_parent, node_end, node_owner)
    lengths, depth, sampled = table
    return Layout(
        spans,
        row_starts(lengths),
        node_parent,
        node_end,
        depth.copy(),
        node_owner,
        row_starts(sampled),
        node,
        end_in_node,
    )


@kernel
def _depth_first(parent: Int64Array, by_first_call: Int64Array) -> Int64Array:
    """Return the spans depth first, children and roots in the order of their first call."""
    child = np.full(len(parent) + 1, -1, np.int64)  # first of each span; the last entry is for the roots
    sibling = np.full(len(parent), -1, np.int64)
    for at in range(len(by_first_call) - 1, -1, -1):
        span = by_first_call[at]
        above = parent[span] if parent[span] >= 0 else len(parent)
        sibling[span] = child[above]
        child[above] = span
    order = np.empty(len(by_first_call), np.int64)
    span = child[len(parent)]
    for at in range(len(order)):
        order[at] = span
        if child[span] >= 0:
            span = child[span]
            continue
        while span >= 0 and sibling[span] < 0:
            span = parent[span]
        if span >= 0:
            span = sibling[span]
    return order


@kernel
def _join(
    parent: Int64Array,
    length: Int64Array,
    owner: Int32Array,
    spans: Int64Array,
    node: Int32Array,
    end_in_node: Int64Array,
) -> int:
    """Number the nodes: a span goes on with its parent's where it is the only child and of the same owner."""
    children = np.zeros(len(parent), np.int64)
    for span in spans:
        if parent[span] >= 0:
            children[parent[span]] += 1
    count = 0
    for span in spans:
        above = parent[span]
        if above >= 0 and children[above] == 1 and owner[above] == owner[span]:
            node[span] = node[above]
            end_in_node[span] = end_in_node[above] + length[span]
        else:
            node[span] = count
            end_in_node[span] = length[span]
            count += 1
    return count


@kernel
def _describe(
    parent: Int64Array,
    owner: Int32Array,
    spans: Int64Array,
    node: Int32Array,
    end_in_node: Int64Array,
    table: Int64Array,
    node_parent: Int32Array,
    node_end: Int32Array,
    node_owner: Int32Array,
) -> None:
    """Fill the columns of the nodes; `table` has their lengths, depths and sampled tokens."""
    lengths, depths, sampled = table[0], table[1], table[2]
    known = -1
    for span in spans:
        at = node[span]
        if at > known:
            known = at
            above = node[parent[span]] if parent[span] >= 0 else -1
            node_parent[at] = above
            depths[at] = depths[above] + lengths[above] if above >= 0 else 0
            node_owner[at] = owner[span]
            node_end[at] = at + 1
        lengths[at] = end_in_node[span]
        sampled[at] = lengths[at] if owner[span] >= 0 else 0
    for at in range(len(node_parent) - 1, -1, -1):
        if node_parent[at] >= 0:
            node_end[node_parent[at]] = max(node_end[node_parent[at]], node_end[at])


@kernel
def gather_tokens(
    spans: Int64Array, length: Int64Array, offset: Int64Array, pool: Int32Array, tokens: Int32Array
) -> None:
    """Copy the tokens of the laid out `spans` from the pool."""
    written = 0
    for span in spans:
        count = length[span]
        tokens[written : written + count] = pool[offset[span] : offset[span] + count]
        written += count


@kernel
def gather_sampled(
    spans: Int64Array,
    depth: Int64Array,
    length: Int64Array,
    owner: Int32Array,
    first_row: Int64Array,
    pool_logprobs: Float32Array,
    pool_versions: Int32Array,
    logprobs: Float32Array,
    versions: Int32Array,
) -> None:
    """Copy what the owners of the laid out `spans` recorded of their tokens from the pools.

    The row of an owner's token at depth d is first_row[owner] + d.
    """
    written = 0
    for span in spans:
        if owner[span] >= 0:
            count = length[span]
            row = first_row[owner[span]] + depth[span]
            logprobs[written : written + count] = pool_logprobs[row : row + count]
            versions[written : written + count] = pool_versions[row : row + count]
            written += count
