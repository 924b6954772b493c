"""A tree's tokens as strips: parts of nodes of one origin and one fate, each a rectangle of the drawing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ...arrays import BoolArray, Int8Array, Int32Array, Int64Array
from .view import TreeView


class Fate(IntEnum):
    """What becomes of a strip's tokens."""

    CONTEXT = 0
    SAMPLED = 1  # and not trained
    TRAINED = 2


FATE_WORDS = {Fate.CONTEXT: "context", Fate.SAMPLED: "sampled, not trained", Fate.TRAINED: "trained"}


@dataclass(frozen=True, slots=True, eq=False)
class Strips:
    """P strips in the order of the tree's tokens."""

    node: Int32Array  # P
    first: Int64Array  # P, index into the tree's tokens
    length: Int64Array  # P
    begins_at: Int64Array  # P, tokens before it on its path
    fate: Int8Array  # P
    selected: BoolArray  # P, in a selected path


def strips(view: TreeView) -> Strips:
    """Cut the nodes where tokens begin or cease to be trained, or to stand in a selected path."""
    tree = view.tree
    cut = np.zeros(tree.unique_tokens, np.bool_)
    cut[tree.node_start[:-1]] = True
    for marks in (view.trained, view.selected):
        cut[1:] |= marks[1:] != marks[:-1]
    first = np.flatnonzero(cut)
    node = np.searchsorted(tree.node_start, first, side="right") - 1
    fate = np.where(view.trained[first], Fate.TRAINED, np.where(tree.node_owner[node] >= 0, Fate.SAMPLED, Fate.CONTEXT))
    return Strips(
        node.astype(np.int32),
        first,
        np.diff(np.append(first, tree.unique_tokens)),
        tree.node_depth[node] + first - tree.node_start[node],
        fate.astype(np.int8),
        view.selected[first],
    )
