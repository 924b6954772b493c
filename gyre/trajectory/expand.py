"""Selected paths written out: from a tree to rows of tokens with masks."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ..arrays import BoolArray, Float32Array, Int32Array, Int64Array, row_starts
from ..compiler import kernel
from .paths import Dedup, Paths
from .samples import PathRows
from .segments import Segments, trainable_segments
from .tree import Tree

_Number = TypeVar("_Number", np.int32, np.float32)


class _Nodes(NamedTuple):
    """What of a tree is written out."""

    tokens: Int32Array
    start: Int64Array
    parent: Int32Array
    depth: Int64Array
    owner: Int32Array
    sampled_start: Int64Array
    logprobs: Float32Array
    versions: Int32Array


class _Rows(NamedTuple):
    """Where it is written; see `PathRows`."""

    start: Int64Array
    tokens: Int32Array
    loss_mask: BoolArray
    logprobs: Float32Array
    versions: Int32Array
    edges: Int64Array


def expand(tree: Tree, paths: Paths) -> PathRows:
    """Write the selected paths of a tree out, one row a path, each as long as `paths` says.

    A token is in the mask of the first row that holds it (`Dedup.TOKEN`), or an output in that of the first row that
    goes through its end and still holds some of it (`Dedup.SEGMENT`).
    """
    nodes = _Nodes(
        tree.tokens,
        tree.node_start,
        tree.node_parent,
        tree.node_depth,
        tree.node_owner,
        tree.sampled_start,
        tree.logprobs,
        tree.versions,
    )
    start = row_starts(paths.length)
    total = int(start[-1])
    rows = _Rows(
        start,
        np.empty(total, np.int32),
        np.zeros(total, np.bool_),
        np.empty(total, np.float32),
        np.empty(total, np.int32),
        np.empty(total, np.int64),
    )
    ends = tree.leaf_node[paths.leaf]
    if paths.dedup is Dedup.TOKEN:
        _mark_tokens(nodes, ends, rows)
    else:
        _mark_segments(nodes, trainable_segments(tree), ends, rows)
    _write(nodes, ends, rows)
    return PathRows(start, paths.leaf, *rows[1:])


@kernel
def _mark_tokens(nodes: _Nodes, ends: Int32Array, rows: _Rows) -> None:
    taken = np.zeros(len(nodes.parent), np.int64)  # leading tokens of each node that an earlier row holds
    for row in range(len(ends)):
        first = rows.start[row]
        length = rows.start[row + 1] - first
        node = ends[row]
        while node >= 0:
            depth = nodes.depth[node]
            kept = min(nodes.start[node + 1] - nodes.start[node], length - depth)
            if nodes.owner[node] >= 0 and kept > taken[node]:
                rows.loss_mask[first + depth + taken[node] : first + depth + kept] = True
                taken[node] = kept
            node = nodes.parent[node]


@kernel
def _mark_segments(nodes: _Nodes, segments: Segments, ends: Int32Array, rows: _Rows) -> None:
    taken = np.zeros(len(segments.start), np.bool_)
    for row in range(len(ends)):
        first = rows.start[row]
        length = rows.start[row + 1] - first
        node = ends[row]
        while node >= 0:
            for segment in range(segments.of_node[node], segments.of_node[node + 1]):
                if not taken[segment] and segments.start[segment] < length:
                    taken[segment] = True
                    kept = min(segments.end[segment], length)
                    rows.loss_mask[first + segments.start[segment] : first + kept] = True
            node = nodes.parent[node]


@kernel
def _write(nodes: _Nodes, ends: Int32Array, rows: _Rows) -> None:
    """Write all but the mask, which stands already: a node is one run of plain copies."""
    for row in range(len(ends)):
        first = rows.start[row]
        length = rows.start[row + 1] - first
        node = ends[row]
        while node >= 0:
            low = nodes.start[node]
            to = first + nodes.depth[node]
            kept = max(min(nodes.start[node + 1] - low, length - nodes.depth[node]), 0)
            _copy(rows.tokens[to : to + kept], nodes.tokens[low : low + kept])
            _count_up(rows.edges[to : to + kept], low)
            if nodes.owner[node] >= 0:
                at = nodes.sampled_start[node]
                mask = rows.loss_mask[to : to + kept]
                _copy_masked(rows.logprobs[to : to + kept], nodes.logprobs[at : at + kept], mask, np.float32(0))
                _copy_masked(rows.versions[to : to + kept], nodes.versions[at : at + kept], mask, np.int32(-1))
            else:
                rows.logprobs[to : to + kept] = 0
                rows.versions[to : to + kept] = -1
            node = nodes.parent[node]


# Loops over slices that begin at index 0: with an offset inside, the compiler cannot rule out a negative index, and
# does not use vector instructions.


@kernel
def _copy(target: Int32Array, source: Int32Array) -> None:
    for i in range(len(target)):
        target[i] = source[i]


@kernel
def _count_up(target: Int64Array, first: int) -> None:
    for i in range(len(target)):
        target[i] = first + i


@kernel
def _copy_masked(
    target: npt.NDArray[_Number], source: npt.NDArray[_Number], mask: BoolArray, otherwise: _Number
) -> None:
    for i in range(len(target)):
        target[i] = source[i] if mask[i] else otherwise
