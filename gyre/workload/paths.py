"""Which root-to-leaf paths of an execution's context tree are trained on."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from ..arrays import Int8Array, Int32Array, Int64Array, row_starts
from ..role import Role
from .schema import Relation

# Codes are indices into the enumerations, as in `Program`.
APPEND: Final = list(Relation).index(Relation.APPEND)
SIDE: Final = list(Role).index(Role.SIDE)
# Leaves are taken class by class, in this order; side calls are never trained on.
CLASSES: Final = np.array(
    [list(Role).index(role) for role in (Role.MAIN, Role.MAIN_SUMMARY, Role.SUB_AGENT, Role.SUB_AGENT_SUMMARY)], np.int8
)


class ContextTrees(NamedTuple):
    """The context trees of E executions with C calls together."""

    call_start: Int64Array  # E + 1, CSR offsets into the other arrays
    role: Int8Array  # C
    relation: Int8Array  # C
    parent: Int32Array  # C, index inside the execution, -1 at a root
    prefix_tokens: Int64Array  # C
    input_tokens: Int64Array  # C
    output_tokens: Int64Array  # C


def selected_paths(trees: ContextTrees, max_paths: int) -> tuple[Int64Array, Int64Array]:
    """Select at most `max_paths` root-to-leaf paths of each execution, with tokens trained at most once.

    A call is a leaf if no other call continues its whole context, by appending to it or with a prefix that holds all
    of it. Classes are taken in the order main, main_summary, sub_agent, sub_agent_summary; inside a class always the
    leaf whose path still has the most output tokens that no selected path holds (the earlier call on a tie), until
    none has any. A path holds of an ancestor's output what lies inside the prefix that it shares with that ancestor.
    (QwenGyre draws the leaf with probability proportional to those tokens; taking the largest needs no seed.)

    Returns:
        `path_start` (E + 1, CSR) and `leaf` (P, row of each selected leaf, in the order of selection).
    """
    executions = len(trees.call_start) - 1
    leaf = np.empty(executions * max_paths, np.int64)
    counts = np.empty(executions, np.int64)
    _select(trees, max_paths, leaf, counts)
    path_start = row_starts(counts)
    return path_start, leaf[: path_start[-1]].copy()


@njit(cache=True)
def _select(trees: ContextTrees, max_paths: int, leaf: Int64Array, counts: Int64Array) -> None:
    taken = np.zeros(len(trees.role), np.int64)  # leading output tokens of each call that a selected path holds
    is_leaf = _leaves(trees)
    written = 0
    for e in range(len(trees.call_start) - 1):
        low, high = trees.call_start[e], trees.call_start[e + 1]
        first = written
        leaves = np.flatnonzero(is_leaf[low:high]) + low
        for wanted in CLASSES:
            candidates = leaves[trees.role[leaves] == wanted]
            while written - first < max_paths:
                best, most = -1, 0
                for call in candidates:
                    fresh = _fresh_tokens(trees, low, call, taken, False)
                    if fresh > most:
                        best, most = call, fresh
                if best < 0:
                    break
                _fresh_tokens(trees, low, best, taken, True)
                leaf[written] = best
                written += 1
        counts[e] = written - first


@njit(cache=True)
def _leaves(trees: ContextTrees) -> npt.NDArray[np.bool_]:
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


@njit(cache=True)
def _fresh_tokens(trees: ContextTrees, low: int, leaf: int, taken: Int64Array, take: bool) -> int:
    """Output tokens on the path to `leaf` that are not taken yet; marks them as taken if `take`."""
    fresh = 0
    call = leaf
    held = trees.input_tokens[leaf] + trees.output_tokens[leaf]  # leading tokens of the call's context on the path
    while True:
        kept = min(held - trees.input_tokens[call], trees.output_tokens[call])
        if kept > taken[call] and trees.role[call] != SIDE:
            fresh += kept - taken[call]
            if take:
                taken[call] = kept
        if trees.parent[call] < 0:
            return fresh
        up = low + trees.parent[call]
        shared = trees.prefix_tokens[call]
        if trees.relation[call] == APPEND:  # the whole context, even where the prefix counts full blocks only
            shared = min(trees.input_tokens[up] + trees.output_tokens[up], trees.input_tokens[call])
        held = min(shared, held)
        call = up
