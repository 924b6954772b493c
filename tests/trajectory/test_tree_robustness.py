"""Shapes that break trees: long runs, deep and wide forests, splits under old tips, colliding hashes, huge offsets."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_reading import assert_same, edges, node_paths, record, records, tip
from trie_oracle import TrieOracle, input_path, whole_path

from gyre.trajectory.building import TreeBuilder, build_tree
from gyre.trajectory.building.finish import Material, finished
from gyre.trajectory.building.radix import END, NODES, OFFSET, PARENT, START, TOKENS, Radix, _slot
from gyre.trajectory.call import CallRecord


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 70), st.integers(1, 200)), min_size=1, max_size=6))
def test_runs_of_any_length_part_at_the_exact_token(parts: list[tuple[int, int, int]]) -> None:
    # Each input follows one long sequence for a while, then goes its own way; the output returns to the sequence.
    long = np.arange(400, dtype=np.int32)
    calls = [
        record(n, [*long[:shared], *(1000 + long[:own])], long[shared : shared + outputs])
        for n, (shared, own, outputs) in enumerate(parts)
    ]
    assert edges(build_tree(calls)) == TrieOracle(calls).edges


def test_tips_stay_where_they_are_when_their_node_is_split_again_and_again() -> None:
    rng = np.random.default_rng(1)
    early = [record(n, range(1, n + 2), [n + 2]) for n in range(60)]  # each goes on from the one before: one long run
    splits = [record(100 + n, [*range(1, n + 2), 500], [n]) for n in range(60)]
    calls = [*early, *(splits[n] for n in rng.permutation(60))]
    builder = TreeBuilder("e")
    for call in calls:
        builder.add(call)
    tree = builder.tree()
    paths = node_paths(tree)
    by_id = {call.call_id: call for call in calls}
    for row, call_id in enumerate(tree.calls.call_id):
        at = tree.calls
        assert tip(tree, paths, at.input_node[row], at.input_offset[row]) == input_path(by_id[call_id])
        assert tip(tree, paths, at.output_node[row], at.output_offset[row]) == whole_path(by_id[call_id])
    assert_same(build_tree(calls[::-1]), tree)


def test_thousands_of_levels() -> None:
    levels = 3000
    chain = np.arange(2 * levels, dtype=np.int32)
    calls = [record(n, chain[: 2 * n + 1], chain[2 * n + 1 : 2 * n + 2]) for n in range(levels)]
    tree = build_tree(calls)
    np.testing.assert_array_equal(tree.tokens, chain)
    np.testing.assert_array_equal(tree.node_parent, np.arange(-1, 2 * levels - 1))
    np.testing.assert_array_equal(tree.node_end, 2 * levels)
    np.testing.assert_array_equal(tree.node_owner[1::2], np.arange(levels))
    assert (tree.node_owner[::2] == -1).all()
    assert_same(build_tree(calls[::-1]), tree)


def test_thousands_of_children_stand_in_commit_order() -> None:
    rng = np.random.default_rng(2)
    first = rng.permutation(5000)
    calls = [record(n, [0, token], [token + 1]) for n, token in enumerate(first.tolist())]
    tree = build_tree(calls[n] for n in rng.permutation(5000))
    assert tree.unique_tokens == 10_001
    np.testing.assert_array_equal(tree.tokens[1::2], first)
    np.testing.assert_array_equal(tree.leaf_call, np.arange(5000))


def test_children_whose_hashes_collide_stay_apart() -> None:
    slots = 1 << 12
    colliding = [token for token in range(60 * slots) if _slot(-1, token, slots - 1) == 7][:40]
    assert len(colliding) == 40
    assert len({_slot(-1, token, 127) for token in colliding}) == 1  # in every smaller table too
    calls = [record(n, [token, *colliding[:3]], colliding[n % 5 : n % 5 + 3]) for n, token in enumerate(colliding)]
    assert edges(build_tree(calls)) == TrieOracle(calls).edges


def test_many_nodes_are_found_again_while_the_tables_grow() -> None:
    rng = np.random.default_rng(3)
    calls = [record(n, rng.integers(0, 40, 3), rng.integers(0, 40, 2)) for n in range(3000)]
    tree = build_tree(calls)
    distinct = {tuple(whole_path(call)[:length]) for call in calls for length in range(1, 6)}
    assert tree.unique_tokens == len(distinct)
    assert_same(build_tree(calls[::-1]), tree)


def _sparse_pool(tokens: int) -> np.ndarray:
    """An array of which only what is written to takes memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        return np.frombuffer(mmap.mmap(-1, 4 * tokens, flags=flags), np.int32)
    except (OSError, OverflowError):
        pytest.skip("this machine gives no 8 GiB of addresses")


def test_offsets_go_beyond_32_bits() -> None:
    first = (1 << 31) - 2  # the first call's tokens stand across the border
    builder = TreeBuilder("e")
    radix = builder._radix
    radix.pool = _sparse_pool((1 << 31) + 1000)
    radix.used[TOKENS] = first
    calls: list[CallRecord] = records(([1, 2, 3], [4]), ([1, 2, 5], [6]), ([1, 2, 3, 4, 7], [8]), ([9], [1]))
    for call in calls:
        assert builder.add(call) is None
    assert (radix.nodes[: radix.used[NODES], OFFSET] > np.iinfo(np.int32).max).any()
    material = Material(builder._entries, (), radix, builder._sampled, builder._stand_ins)
    assert_same(finished("e", "", material), build_tree(calls))


def test_nodes_of_the_forest_span_their_depths() -> None:
    radix = Radix()
    for call in records(([1, 2, 3], [4]), ([1, 2, 5], [6]), ([1, 2], [3, 9])):
        radix.insert(call.input_ids, call.output_ids)
    for node, parent in enumerate(radix.nodes[: radix.used[NODES], PARENT].tolist()):
        assert radix.nodes[node, START] == (radix.nodes[parent, END] if parent >= 0 else 0)
        assert radix.nodes[node, START] < radix.nodes[node, END]
