"""Selected paths written out as rows: masks by hand, and every column against a dictionary of prefixes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tree_oracle import call_lists
from tree_reading import Pair, node_paths, record, records
from trie_oracle import Edge, TrieOracle

from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord, Finish
from gyre.trajectory.expand import expand
from gyre.trajectory.paths import Dedup, Paths
from gyre.trajectory.samples import PathRows
from gyre.trajectory.selection import Selection, path_lengths, select


def in_order(calls: list[CallRecord], dedup: Dedup = Dedup.TOKEN) -> PathRows:
    """Rows of all paths, as the leaves stand."""
    tree = build_tree(calls)
    lengths = path_lengths(tree)
    return expand(tree, Paths(np.arange(len(lengths), dtype=np.int32), lengths, dedup))


def masks(rows: PathRows) -> list[str]:
    """Each row's mask, as digits."""
    digits = "".join(str(int(masked)) for masked in rows.loss_mask)
    return [digits[low:high] for low, high in zip(rows.row_start[:-1], rows.row_start[1:], strict=True)]


# calls, masks by token, masks by segment; of the compaction the copied summary is context.
CASES: dict[str, tuple[list[Pair], list[str], list[str]]] = {
    "two turns": ([([1], [2]), ([1, 2, 3], [4])], ["0101"], ["0101"]),
    "the same answer twice": ([([1], [2, 3]), ([1], [2, 3]), ([1, 2, 3, 4], [5])], ["01101"], ["01101"]),
    "answers that share a token": ([([1], [2, 3]), ([1], [2, 4])], ["011", "001"], ["011", "011"]),
    "cut by length, then whole": ([([1], [2]), ([1], [2, 3])], ["011"], ["011"]),
    "compaction": ([([1], [2]), ([1, 2, 9], [5, 6]), ([1, 5, 6], [7])], ["01011", "0001"], ["01011", "0001"]),
    "re-tokenised": ([([1], [2, 3, 4]), ([1, 2, 8, 4, 5], [6])], ["0111", "000001"], ["0111", "000001"]),
    "stop token replaced": ([([1], [2, 99]), ([1, 2, 50, 3], [4])], ["011", "00001"], ["011", "00001"]),
    "from outside, then generated": (
        [([1, 2], [3, 4]), ([1, 2, 3, 4, 5], [6]), ([1, 2], [3, 4, 5, 6, 7]), ([1, 2, 3, 4, 5, 6, 7, 9], [8])],
        ["001111101"],
        ["001111101"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_masks_of_known_trees(name: str) -> None:
    calls, by_token, by_segment = CASES[name]
    assert masks(in_order(records(*calls))) == by_token
    assert masks(in_order(records(*calls), Dedup.SEGMENT)) == by_segment


def test_a_row_owns_what_no_selected_row_before_it_holds() -> None:
    """Same-length drift; where the owner's path is not selected, its shared token is trained on the other one."""
    tree = build_tree(records(([1], [2, 3, 4]), ([1, 2, 8, 4, 5], [6])))
    assert masks(expand(tree, Paths(np.array([1], np.int32), np.array([6])))) == ["010001"]
    assert masks(expand(tree, Paths(np.array([1, 0], np.int32), np.array([6, 4])))) == ["010001", "0011"]


def test_an_output_whose_end_is_on_no_selected_path_is_context_by_segment() -> None:
    tree = build_tree(records(([1], [2, 3, 4]), ([1, 2, 8, 4, 5], [6])))
    assert masks(expand(tree, Paths(np.array([1], np.int32), np.array([6]), Dedup.SEGMENT))) == ["000001"]


@pytest.mark.parametrize(
    ("output", "dedup", "expected"),
    [
        (([1, 2], [3]), Dedup.TOKEN, ["00", "00101"]),  # nothing of the shared output is left in the first row
        (([1, 2], [3]), Dedup.SEGMENT, ["00", "00101"]),
        (([1], [2, 3]), Dedup.TOKEN, ["01", "00101"]),  # a part of it is
        (([1], [2, 3]), Dedup.SEGMENT, ["01", "00001"]),
    ],
)
def test_truncation_comes_before_ownership(output: Pair, dedup: Dedup, expected: list[str]) -> None:
    tree = build_tree(records(output, ([1, 2, 3, 9], [4]), ([1, 2, 3, 8], [5])))
    rows = expand(tree, Paths(np.array([0, 1], np.int32), np.array([2, 5]), dedup))
    assert rows.tokens.tolist() == [1, 2, 1, 2, 3, 8, 5]
    assert masks(rows) == expected


def test_versions_of_an_output_that_was_aborted_and_resumed() -> None:
    first = record(0, [1], [2, 3], versions=np.array([1, 1], np.int32), finish=Finish.ABORT)
    then = record(1, [1, 2, 3], [4], versions=np.array([2], np.int32))
    rows = in_order([first, then])
    assert rows.tokens.tolist() == [1, 2, 3, 4]
    assert rows.versions.tolist() == [-1, 1, 1, 2]


@given(call_lists(), st.sampled_from(Dedup), st.data())
def test_every_column_is_the_owners(calls: list[CallRecord], dedup: Dedup, data: st.DataObject) -> None:
    """Any leaves in any order, each cut anywhere."""
    tree, oracle = build_tree(calls, "e"), TrieOracle(calls)
    paths = node_paths(tree)
    order = data.draw(st.permutations(range(len(tree.leaf_node))))
    kept = [data.draw(st.integers(0, len(paths[tree.leaf_node[leaf]]))) for leaf in order]
    rows = expand(tree, Paths(np.array(order, np.int32), np.array(kept, np.int64), dedup))
    assert rows.row_start.tolist() == [0, *np.cumsum(kept, dtype=int).tolist()]
    edge_of: dict[Any, int] = {}
    for row, (leaf, length) in enumerate(zip(order, kept, strict=True)):
        path = paths[tree.leaf_node[leaf]]
        for depth in range(length):
            at = rows.row_start[row] + depth
            edge = oracle.edges[path[: depth + 1]]
            shown = edge if rows.loss_mask[at] else Edge()
            assert edge.owner is not None or not rows.loss_mask[at]
            assert rows.tokens[at] == tree.tokens[rows.edges[at]]
            assert edge_of.setdefault(path[: depth + 1], rows.edges[at]) == rows.edges[at]
            assert (rows.logprobs[at], rows.versions[at]) == (shown.logprob, shown.version)
    assert len(set(edge_of.values())) == len(edge_of)
    if dedup is Dedup.TOKEN:
        held = {p for p in edge_of if oracle.edges[p].owner is not None}
        assert np.count_nonzero(rows.loss_mask) == len(held) == len(set(rows.edges[rows.loss_mask].tolist()))


def test_no_paths_give_no_rows() -> None:
    tree = build_tree([], "e")
    rows = expand(tree, select(tree, Selection()))
    assert rows.row_start.tolist() == [0]
    assert len(rows.tokens) == len(rows.leaf) == 0
