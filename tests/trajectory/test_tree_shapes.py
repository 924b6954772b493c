"""Small executions by hand: unique tokens, trained tokens, leaves and masks of every shape that histories take."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from tree_reading import Pair, assert_same, node_paths, record, records

from gyre.trajectory.building import build_tree
from gyre.trajectory.expand import expand
from gyre.trajectory.paths import Dedup, Paths
from gyre.trajectory.selection import Selection, select
from gyre.trajectory.tree import Tree


def masks(tree: Tree, leaves: Sequence[int] | None = None, dedup: Dedup = Dedup.TOKEN) -> list[str]:
    """Return the loss masks of the rows of some leaves, or of all that add something, in the order of selection."""
    paths = select(tree, Selection(mode="all", dedup=dedup))
    if leaves is not None:
        ends = node_paths(tree)
        length = np.array([len(ends[tree.leaf_node[leaf]]) for leaf in leaves], np.int64)
        paths = Paths(np.array(leaves, np.int32), length, dedup)
    rows = expand(tree, paths)
    return ["".join(map(str, part.astype(int))) for part in np.split(rows.loss_mask, rows.row_start[1:-1])]


SHAPES: dict[str, tuple[list[Pair], int, int, list[str]]] = {
    "one turn after the other": ([([1], [2]), ([1, 2, 3], [4])], 4, 1, ["0101"]),
    "retried, then gone on from": ([([1], [2, 3]), ([1], [2, 3]), ([1, 2, 3, 4], [5])], 5, 1, ["01101"]),
    "retried at the end": ([([1], [2, 3]), ([1], [2, 3])], 3, 1, ["011"]),
    "retried with another answer": ([([1], [2, 3]), ([1], [4, 3])], 5, 2, ["011", "011"]),
    "answers that begin alike": ([([1], [2, 3]), ([1], [2, 4])], 4, 2, ["011", "001"]),
    "cut short, then sampled longer": ([([1], [2]), ([1], [2, 3])], 3, 1, ["011"]),
    "summary copied into a new prompt": (
        [([1], [2]), ([1, 2, 9], [5, 6]), ([1, 5, 6], [7])],
        8,
        2,
        ["01011", "0001"],
    ),
    "rejected summary": ([([1], [2]), ([1, 2, 9], [5]), ([1, 2, 3], [4])], 6, 2, ["0101", "0001"]),
    "last turns kept word for word behind a summary": (
        [([1], [2]), ([1, 2, 3], [4]), ([1, 8, 2, 3, 4, 9], [5])],
        10,
        2,
        ["0101", "0000001"],
    ),
    "two chains behind one system prompt": (
        [([1, 2], [3]), ([1, 5], [6]), ([1, 2, 3, 4], [7]), ([1, 5, 6, 8], [9])],
        9,
        2,
        ["00101", "00101"],
    ),
    "sub-agent that shares no token": (
        [([1], [2]), ([5], [6]), ([1, 2, 3], [4]), ([5, 6, 7], [8])],
        8,
        2,
        ["0101", "0101"],
    ),
    "sub-agent forked from the full history": (
        [([1], [2]), ([1, 2, 3], [4]), ([1, 2, 3, 4, 9], [5]), ([1, 2, 3, 4, 8], [6])],
        8,
        2,
        ["010101", "000001"],
    ),
    "three forks of one node": (
        [([1], [2]), ([1, 2, 3], [4]), ([1, 2, 5], [6]), ([1, 2, 7], [8])],
        8,
        3,
        ["0101", "0001", "0001"],
    ),
    "best of three, gone on from an old candidate": (
        [([1], [2]), ([1], [3]), ([1], [4]), ([1, 2, 5], [6])],
        6,
        3,
        ["0101", "01", "01"],
    ),
    "back to the start": ([([1], [2]), ([1, 2, 3], [4]), ([1], [7])], 5, 2, ["0101", "01"]),
    "context first, sampled later": (
        [([1, 2], [3, 4]), ([1, 2, 3, 4, 5], [6]), ([1, 2], [3, 4, 5, 6, 7]), ([1, 2, 3, 4, 5, 6, 7, 9], [8])],
        9,
        1,
        ["001111101"],
    ),
    "tool result deleted from the history": (
        [([1], [2]), ([1, 2, 3, 4], [5]), ([1, 2, 4], [6])],
        7,
        2,
        ["01001", "0001"],
    ),
    "first token changed": ([([1, 2], [3]), ([9, 2, 3, 4], [5])], 8, 2, ["001", "00001"]),
    "drift of another length": ([([1], [2, 3, 4]), ([1, 8, 4, 5], [6])], 8, 2, ["0111", "00001"]),
    "drift of the same length": ([([1], [2, 3, 4]), ([1, 2, 8, 4, 5], [6])], 8, 2, ["0111", "000001"]),
    "stop token replaced": ([([1], [2, 99]), ([1, 2, 50, 3], [4])], 6, 2, ["011", "00001"]),
    "thinking stripped": ([([1], [90, 91, 4]), ([1, 4, 5], [6])], 7, 2, ["0111", "0001"]),
    "few-shot turn in the prompt": ([([1, 2, 3], [4])], 4, 1, ["0001"]),
    "output fed back as a user's text": ([([1], [2, 3]), ([9, 2, 3], [4])], 7, 2, ["011", "0001"]),
    "cut at the token limit, then extended": ([([1], [2]), ([1, 2], [3])], 3, 1, ["011"]),
}


@pytest.mark.parametrize(("pairs", "unique", "leaves", "rows"), SHAPES.values(), ids=SHAPES.keys())
def test_shape(pairs: list[Pair], unique: int, leaves: int, rows: list[str]) -> None:
    tree = build_tree(records(*pairs))
    assert tree.unique_tokens == unique
    assert len(tree.leaf_node) == leaves
    assert masks(tree) == rows
    assert tree.sampled_tokens == sum(row.count("1") for row in rows)


@pytest.mark.parametrize("pairs", [shape[0] for shape in SHAPES.values()], ids=SHAPES.keys())
def test_shape_is_the_same_in_every_order_of_arrival(pairs: list[Pair]) -> None:
    calls = records(*pairs)
    tree = build_tree(calls)
    for order in permutations(calls):
        assert_same(build_tree(order), tree)


def test_answers_that_begin_alike_train_their_beginning_twice_by_segment() -> None:
    tree = build_tree(records(([1], [2, 3]), ([1], [2, 4])))
    assert masks(tree, dedup=Dedup.SEGMENT) == ["011", "011"]


@pytest.mark.parametrize(
    ("pairs", "mask"),
    [
        ([([1], [2, 3, 4]), ([1, 2, 8, 4, 5], [6])], "010001"),  # drift of the same length: 2 is as it was sampled
        ([([1], [2, 99]), ([1, 2, 50, 3], [4])], "01001"),  # stop token replaced
    ],
)
def test_second_path_alone_trains_what_it_shares(pairs: list[Pair], mask: str) -> None:
    assert masks(build_tree(records(*pairs)), leaves=[1]) == [mask]


def test_equal_outputs_of_two_executions_both_count() -> None:
    first, second = ([record(0, [1], [2, 3], call_id=name)] for name in "ab")
    assert [build_tree(calls).sampled_tokens for calls in (first, second)] == [2, 2]
