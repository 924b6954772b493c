"""Where a tree's nodes stand in a drawing: across by tokens along the path, down by lanes.

A branch keeps one lane from where it leaves its parent to its leaf. Branches are laid below the branch that they leave,
the one that leaves furthest along first, each in the first lanes that are free for all of it: so no connector crosses a
branch, branches that leave at one place stand in the order of their calls, and many short branches share a lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ...arrays import Int32Array, Int64Array
from ..tree import Tree

_ENOUGH: Final = 0.25  # of the largest child's tokens: the first child that has as much goes on in its parent's lane


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes of M nodes in B branches."""

    node_lane: Int32Array  # M
    head: Int32Array  # B, first node of each branch
    tail: Int32Array  # B, its last node, a leaf
    length: Int64Array  # B, tokens from the first to the last node
    count: int  # lanes in all


def lanes(tree: Tree, room: Int64Array) -> Lanes:
    """Lay out a tree; behind leaf l its lane is left free for `room[l]` tokens, (L,)."""
    branch, heads, tails = _branches(tree)
    starts: list[int] = tree.node_depth[heads].tolist()
    behind = np.zeros(len(tree.node_parent), np.int64)
    behind[tree.leaf_node] = room
    ends: list[int] = (tree.node_depth[tails] + np.diff(tree.node_start)[tails]).tolist()
    parent = [int(tree.node_parent[head]) for head in heads]
    below: list[list[int]] = [[] for _ in heads]
    for number, node in enumerate(parent):
        if node >= 0:
            below[branch[node]].append(number)
    reach: list[int] = (np.array(ends, np.int64) + behind[tails]).tolist()
    height, offset = [1] * len(heads), [0] * len(heads)
    for number in range(len(heads) - 1, -1, -1):  # a branch stands after the one that it leaves
        free_before = list[int]()  # for each lane below, where the branches in it begin
        for child in sorted(below[number], key=lambda child: -starts[child]):
            offset[child] = 1 + _first_fit(free_before, height[child], reach[child], starts[child])
            reach[number] = max(reach[number], reach[child])
        height[number] = 1 + len(free_before)
    lane, total = [0] * len(heads), 0
    for number, node in enumerate(parent):
        if node < 0:
            lane[number], total = total, total + height[number]
        else:
            lane[number] = lane[branch[node]] + offset[number]
    return Lanes(
        np.array(lane, np.int32)[branch],
        np.array(heads, np.int32),
        np.array(tails, np.int32),
        np.array(ends, np.int64) - np.array(starts, np.int64),
        total,
    )


def _branches(tree: Tree) -> tuple[Int32Array, list[int], list[int]]:
    """Return each node's branch, (M,), and each branch's first and last node."""
    parents, count = tree.node_parent.tolist(), len(tree.node_parent)
    goes_on = _goes_on(tree)
    branch, heads, tails = [0] * count, list[int](), list[int]()
    for node in range(count):
        parent = parents[node]
        if parent >= 0 and goes_on[parent] == node:
            branch[node] = branch[parent]
        else:
            branch[node] = len(heads)
            heads.append(node)
            tails.append(node)
        tails[branch[node]] = node
    return np.array(branch, np.int32), heads, tails


def _goes_on(tree: Tree) -> list[int]:
    """Return for each node the child that stays in its lane, -1 where there is none."""
    weights = (tree.node_start[tree.node_end] - tree.node_start[:-1]).tolist()
    parents = tree.node_parent.tolist()
    heaviest = [0] * len(parents)
    for node, parent in enumerate(parents):
        if parent >= 0:
            heaviest[parent] = max(heaviest[parent], weights[node])
    chosen = [-1] * len(parents)
    for node, parent in enumerate(parents):
        if parent >= 0 and chosen[parent] < 0 and weights[node] >= _ENOUGH * heaviest[parent]:
            chosen[parent] = node
    return chosen


def _first_fit(free_before: list[int], height: int, end: int, start: int) -> int:
    """Take the first `height` lanes in a row that are free up to `end`.

    From `start` on they are taken then, and those above them, where the connector passes.
    """
    first = 0
    while any(free < end for free in free_before[first : first + height]):
        first += 1
    kept = free_before[first + height :]
    free_before[:] = [start] * (first + height) + kept
    return first
