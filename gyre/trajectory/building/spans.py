"""The forest cut at every place where a call's input or output ends: each call then holds whole spans.

That turns every question about calls into one about spans: a call's path is the chain of spans from its output span up
to a root, its output the part of that chain below its input span, and two calls share the spans on both their chains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import Int64Array, row_starts
from ...compiler import kernel
from .radix import END, INPUT_DEPTH, INPUT_NODE, OFFSET, OUTPUT_DEPTH, OUTPUT_NODE, PARENT, START


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """B spans and the C calls whose ends cut them."""

    parent: Int64Array  # B, -1 at a root; a parent need not stand before its children
    depth: Int64Array  # B, tokens before the span on its path
    length: Int64Array  # B, 1 or more
    offset: Int64Array  # B, of the first token in the pool
    input_span: Int64Array  # C, ends with the call's last input token
    output_span: Int64Array  # C, ends with the call's last output token


def cut(nodes: Int64Array, places: Int64Array) -> Spans:
    """Cut the forest of `nodes` (N, 4) at the `places` (C, 4); both as in `gyre.trajectory.building.radix`."""
    node = np.concatenate((places[:, INPUT_NODE], places[:, OUTPUT_NODE]))
    depth = np.concatenate((places[:, INPUT_DEPTH], places[:, OUTPUT_DEPTH]))
    spanning = _spanning_nodes(nodes, np.lexsort((-depth, node)), node, depth)
    order = np.lexsort((depth, spanning))
    first = row_starts(_count_spans(nodes, order, spanning, depth))
    spans = np.empty((4, int(first[-1])), np.int64)
    span = np.empty(len(node), np.int64)
    _fill_spans(nodes, order, spanning, depth, first, spans, span)
    parent, span_depth, length, offset = spans
    return Spans(parent, span_depth, length, offset, span[: len(places)], span[len(places) :])


@kernel
def _spanning_nodes(nodes: Int64Array, order: Int64Array, node: Int64Array, depth: Int64Array) -> Int64Array:
    """Return the node that spans each place's depth, at or above the place's node.

    In order of node and falling depth one climb serves all places of a node: linear, however often it was split.
    """
    spanning = np.empty(len(order), np.int64)
    origin, at = -1, -1
    for place in order:
        if node[place] != origin:
            origin = at = node[place]
        while depth[place] <= nodes[at, START]:
            at = nodes[at, PARENT]
        spanning[place] = at
    return spanning


@kernel
def _count_spans(nodes: Int64Array, order: Int64Array, spanning: Int64Array, depth: Int64Array) -> Int64Array:
    counts = np.ones(len(nodes), np.int64)
    node, cut_depth = -1, -1
    for place in order:
        if spanning[place] == node and depth[place] == cut_depth:
            continue
        node, cut_depth = spanning[place], depth[place]
        if cut_depth < nodes[node, END]:
            counts[node] += 1
    return counts


@kernel
def _fill_spans(
    nodes: Int64Array,
    order: Int64Array,
    spanning: Int64Array,
    depth: Int64Array,
    first: Int64Array,
    spans: Int64Array,
    span: Int64Array,
) -> None:
    """Write parent, depth, length and offset of each span, and the span that ends at each place."""
    parents, depths, lengths, offsets = spans[0], spans[1], spans[2], spans[3]
    next_place = 0
    for node in range(len(nodes)):
        at = first[node]
        begin = nodes[node, START]
        parent = nodes[node, PARENT]
        parents[at] = first[parent + 1] - 1 if parent >= 0 else -1
        while True:
            end = nodes[node, END]
            if next_place < len(order) and spanning[order[next_place]] == node:
                end = depth[order[next_place]]
            depths[at], lengths[at] = begin, end - begin
            offsets[at] = nodes[node, OFFSET] + begin - nodes[node, START]
            while next_place < len(order) and spanning[order[next_place]] == node and depth[order[next_place]] == end:
                span[order[next_place]] = at
                next_place += 1
            if end == nodes[node, END]:
                break
            at += 1
            parents[at] = at - 1
            begin = end
