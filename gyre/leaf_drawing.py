"""The bounded draw of root-to-leaf paths, over any tree that is given as arrays.

The rule is QwenGyre's: leaves are classed main > main summary > sub-agent > sub-agent summary. From the highest class
that still has unmasked trainable tokens a leaf is drawn with probability proportional to its path's unmasked tokens;
its whole path is then marked as taken; until nothing is left or enough paths are taken.

Everywhere below M nodes stand so that a node's parent comes before it, and L leaves name a node each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from .arrays import FloatArray, Int8Array, Int32Array, Int64Array
from .compiler import kernel
from .role import TRAINED_ROLES, Role
from .splitmix import WORD_MASK, hashed, mixed

UNTRAINED: Final = -1
CLASSES: Final = len(TRAINED_ROLES)
CLASS_OF_ROLE: Final = np.array(
    [TRAINED_ROLES.index(role) if role in TRAINED_ROLES else UNTRAINED for role in Role], np.int8
)
"""Class (0 is drawn first) of each member of `Role`."""

_PURPOSE: Final = hashed("path selection")  # other draws of a run with the same seed are independent of these


def path_uniforms(seed: int, executions: Sequence[str], draws: int) -> FloatArray:
    """Numbers in [0, 1), (E, draws), that depend on the seed, the execution's id and the number of the draw alone."""
    ids = np.array([hashed(execution) for execution in executions], np.uint64)
    key: npt.NDArray[np.uint64] = mixed(ids ^ np.uint64(mixed(_PURPOSE ^ mixed(seed & WORD_MASK))))
    number = np.arange(draws, dtype=np.uint64)
    bits: npt.NDArray[np.uint64] = mixed(np.add.outer(key, number))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


@kernel
def draw_leaves(
    node_parent: Int32Array, node_fresh: Int64Array, leaf_node: Int32Array, leaf_class: Int8Array, uniform: FloatArray
) -> Int64Array:
    """Draw leaves by the rule above; O(M) a draw.

    Args:
        node_parent: (M,) -1 at a root.
        node_fresh: (M,) trainable tokens of each node.
        leaf_node: (L,).
        leaf_class: (L,) 0 is the highest; `UNTRAINED` leaves are never drawn.
        uniform: one number in [0, 1) for each draw; their count bounds the paths.

    Returns:
        Indices of leaves, in the order in which they were drawn.
    """
    fresh = node_fresh.copy()
    on_path = np.empty(len(fresh), np.int64)
    _sum_paths(node_parent, fresh, on_path)
    drawn = np.empty(min(len(uniform), len(leaf_node)), np.int64)
    count = 0
    wanted = 0
    while count < len(drawn) and wanted < CLASSES:
        total = 0
        for leaf in range(len(leaf_node)):
            if leaf_class[leaf] == wanted:
                total += on_path[leaf_node[leaf]]
        if total == 0:
            wanted += 1
            continue
        target = min(int(uniform[count] * total), total - 1)
        leaf = _leaf_at(target, on_path, leaf_node, leaf_class, wanted)
        node = leaf_node[leaf]
        while node >= 0:
            fresh[node] = 0
            node = node_parent[node]
        _sum_paths(node_parent, fresh, on_path)
        drawn[count] = leaf
        count += 1
    return drawn[:count].copy()


@kernel
def _sum_paths(node_parent: Int32Array, fresh: Int64Array, on_path: Int64Array) -> None:
    for node in range(len(fresh)):
        parent = node_parent[node]
        on_path[node] = fresh[node] + (on_path[parent] if parent >= 0 else 0)


@kernel
def _leaf_at(target: int, on_path: Int64Array, leaf_node: Int32Array, leaf_class: Int8Array, wanted: int) -> int:
    """Leaf that holds the token `target` when the paths of a class lie end to end."""
    for leaf in range(len(leaf_node)):
        if leaf_class[leaf] == wanted:
            target -= on_path[leaf_node[leaf]]
            if target < 0:
                return leaf
    return -1


@kernel
def adding_leaves(
    node_parent: Int32Array, node_fresh: Int64Array, leaf_node: Int32Array, leaves: Int64Array
) -> Int64Array:
    """Those of `leaves`, in their order, whose path holds a trainable token that no path before it holds; O(M)."""
    taken = np.zeros(len(node_fresh), np.bool_)
    kept = np.empty(len(leaves), np.int64)
    count = 0
    for leaf in leaves:
        adds = False
        node = leaf_node[leaf]
        while node >= 0 and not taken[node]:
            taken[node] = True
            adds |= node_fresh[node] > 0
            node = node_parent[node]
        if adds:
            kept[count] = leaf
            count += 1
    return kept[:count].copy()


@kernel
def inherited_classes(
    node_parent: Int32Array, node_class: Int8Array, leaf_node: Int32Array, leaf_class: Int8Array
) -> Int8Array:
    """Classes of leaves, where an untrained leaf stands in for what it continues.

    A side call may come last on a path, after calls that are trained: its leaf takes the class of the deepest of them.
    `node_class` (M,) is the class of the call that sampled the node, `UNTRAINED` for context.
    """
    classes = leaf_class.copy()
    for leaf in range(len(leaf_node)):
        node = leaf_node[leaf]
        while classes[leaf] == UNTRAINED and node >= 0:
            classes[leaf] = node_class[node]
            node = node_parent[node]
    return classes
