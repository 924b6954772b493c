"""Which root-to-leaf paths of an execution's context tree are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ..arrays import BoolArray, FloatArray, Int8Array, Int32Array, Int64Array, row_starts
from ..compiler import kernel
from ..leaf_drawing import CLASS_OF_ROLE, UNTRAINED, draw_leaves, inherited_classes, path_uniforms
from .schema import Relation

APPEND: Final = list(Relation).index(Relation.APPEND)  # codes are indices into the enumerations, as in `Program`


class ContextTrees(NamedTuple):
    """The context trees of E executions with C calls together."""

    call_start: Int64Array  # E + 1, CSR offsets into the other arrays
    role: Int8Array  # C
    relation: Int8Array  # C
    parent: Int32Array  # C, index inside the execution, -1 at a root
    prefix_tokens: Int64Array  # C
    input_tokens: Int64Array  # C
    output_tokens: Int64Array  # C


class _OutputNodes(NamedTuple):
    """The calls' outputs as nodes of their trees, each output cut where other calls leave it; M nodes."""

    start: Int64Array  # E + 1, CSR offsets into the arrays of nodes
    parent: Int32Array  # M, index inside the execution, before the node's own; -1 at a root
    tokens: Int64Array  # M
    call: Int64Array  # M, row of the call
    last: Int64Array  # C, row of the node where the call's output ends


def selected_paths(
    trees: ContextTrees, executions: Sequence[str], max_paths: int, *, seed: int
) -> tuple[Int64Array, Int64Array]:
    """Select at most `max_paths` root-to-leaf paths of each execution, with tokens trained at most once.

    A call is a leaf if no other call continues its whole context, by appending to it or with a prefix that holds all
    of it. Leaves are drawn as `gyre.leaf_drawing` says, as those of recorded tokens are; `executions` (E) names the
    executions for that. A path holds of an ancestor's output what lies inside the prefix that it shares with it.

    Returns:
        `path_start` (E + 1, CSR) and `leaf` (P, row of each selected leaf, in the order of selection).
    """
    is_leaf = _leaves(trees)
    leaf_counts = np.diff(row_starts(is_leaf.view(np.int8))[trees.call_start])
    uniform = path_uniforms(seed, executions, min(max_paths, int(leaf_counts.max(initial=0))))
    leaf = np.empty(uniform.size, np.int64)
    counts = np.empty(len(executions), np.int64)
    _draw(trees, _output_nodes(trees), is_leaf, uniform, leaf, counts)
    path_start = row_starts(counts)
    return path_start, leaf[: path_start[-1]].copy()


@kernel
def _draw(
    trees: ContextTrees,
    nodes: _OutputNodes,
    is_leaf: BoolArray,
    uniform: FloatArray,
    drawn: Int64Array,
    counts: Int64Array,
) -> None:
    written = 0
    for e in range(len(counts)):
        low, high = nodes.start[e], nodes.start[e + 1]
        parent = nodes.parent[low:high]
        node_class = CLASS_OF_ROLE[trees.role[nodes.call[low:high]]]
        fresh = np.where(node_class == UNTRAINED, 0, nodes.tokens[low:high])
        calls = np.flatnonzero(is_leaf[trees.call_start[e] : trees.call_start[e + 1]]) + trees.call_start[e]
        leaf_node = (nodes.last[calls] - low).astype(np.int32)
        leaf_class = inherited_classes(parent, node_class, leaf_node, CLASS_OF_ROLE[trees.role[calls]])
        leaves = draw_leaves(parent, fresh, leaf_node, leaf_class, uniform[e])
        counts[e] = len(leaves)
        drawn[written : written + len(leaves)] = calls[leaves]
        written += len(leaves)


@kernel
def _leaves(trees: ContextTrees) -> BoolArray:
    is_leaf = np.ones(len(trees.role), np.bool_)
    for e in range(len(trees.call_start) - 1):
        low, high = trees.call_start[e], trees.call_start[e + 1]
        for call in range(low, high):
            if trees.parent[call] < 0:
                continue
            up = low + trees.parent[call]
            context = trees.input_tokens[up] + trees.output_tokens[up]
            if trees.relation[call] == APPEND or trees.prefix_tokens[call] >= context:
                is_leaf[up] = False
    return is_leaf


def _output_nodes(trees: ContextTrees) -> _OutputNodes:
    at, depth = _attachments(trees)
    order = np.argsort(at * (depth.max(initial=0) + 1) + depth, kind="stable")  # one key, nearly sorted: not `lexsort`
    return _cut_outputs(trees, at, depth, order)


@kernel
def _attachments(trees: ContextTrees) -> tuple[Int64Array, Int64Array]:
    """Where each call leaves the tree so far: the row of a call, -1 at a root, and how many tokens of its context stay.

    The parent call may itself share those tokens with its own parent, and so on: then the call hangs from that one.
    """
    at = np.full(len(trees.role), -1, np.int64)
    depth = np.zeros(len(trees.role), np.int64)
    for e in range(len(trees.call_start) - 1):
        low = trees.call_start[e]
        for call in range(low, trees.call_start[e + 1]):
            if trees.parent[call] < 0:
                continue
            up = low + trees.parent[call]
            context = trees.input_tokens[up] + trees.output_tokens[up]
            shared = min(trees.prefix_tokens[call], context)
            if trees.relation[call] == APPEND:  # the whole context, even where the prefix counts full blocks only
                shared = min(context, trees.input_tokens[call])
            while at[up] >= 0 and shared <= depth[up]:
                up = at[up]
            at[call], depth[call] = up, shared
    return at, depth


@kernel
def _cut_outputs(trees: ContextTrees, at: Int64Array, depth: Int64Array, order: Int64Array) -> _OutputNodes:
    """Cut the outputs; `order` sorts the calls by the call that they hang from, then by depth."""
    size = len(at)
    start = np.zeros(len(trees.call_start), np.int64)
    parent = np.empty(2 * size, np.int32)  # a call has one node, and one more for a depth at which others leave it
    tokens = np.empty(2 * size, np.int64)
    owner = np.empty(2 * size, np.int64)
    last = np.full(size, -1, np.int64)
    above = np.full(size, -1, np.int64)  # row of the node that a call's first node hangs from
    following = np.searchsorted(at[order], 0)  # place in `order` of the next call to be hung
    count = 0
    for e in range(len(trees.call_start) - 1):
        for call in range(trees.call_start[e], trees.call_start[e + 1]):
            node = above[call]
            written = trees.input_tokens[call]  # tokens of the context that nodes hold so far
            context = written + trees.output_tokens[call]
            while written < context:
                cut = context
                while following < size and at[order[following]] == call:
                    if depth[order[following]] > written:
                        cut = depth[order[following]]
                        break
                    above[order[following]] = node
                    following += 1
                parent[count] = node - start[e] if node >= 0 else -1
                tokens[count] = cut - written
                owner[count] = call
                node, written = count, cut
                count += 1
            while following < size and at[order[following]] == call:  # hung from the end
                above[order[following]] = node
                following += 1
            last[call] = node
        start[e + 1] = count
    return _OutputNodes(start, parent[:count], tokens[:count], owner[:count], last)
