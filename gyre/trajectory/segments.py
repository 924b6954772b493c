"""Outputs of calls as stretches of paths, each once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Int64Array, row_starts
from .tree import Tree


class Segments(NamedTuple):
    """The G distinct outputs of trainable calls: calls with the same tips of input and output have one between them.

    A path goes through a segment's end if it goes through the node where it ends, for paths hold whole nodes.
    """

    of_node: Int64Array  # M + 1, CSR: segments that end in each node
    start: Int64Array  # G, tokens before the segment on its path
    end: Int64Array  # G, start plus length


def trainable_segments(tree: Tree) -> Segments:
    """Return the distinct outputs of a tree's trainable calls, by the node where they end."""
    calls = tree.calls
    rows = np.flatnonzero(calls.trainable & (calls.output_tokens > 0))
    node = calls.output_node[rows].astype(np.int64)
    end = tree.node_depth[node] + calls.output_offset[rows]
    start = end - calls.output_tokens[rows]
    distinct = np.unique(np.stack((node, start, end)), axis=1)
    counts = np.bincount(distinct[0], minlength=len(tree.node_parent))
    return Segments(row_starts(counts), distinct[1].copy(), distinct[2].copy())
