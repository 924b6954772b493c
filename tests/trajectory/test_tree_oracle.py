"""Trees of random calls that share many prefixes, against a plain dictionary of prefixes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_reading import assert_same, edges, node_paths, record, tip
from trie_oracle import TrieOracle, input_path, nearest_earlier_call, whole_path

from gyre.role import Role
from gyre.trajectory.building import TreeBuilder, build_tree, finish
from gyre.trajectory.call import CallRecord, Finish, Media
from gyre.trajectory.call_links import CallLinks
from gyre.trajectory.check import Reason
from gyre.trajectory.expand import expand
from gyre.trajectory.paths import Dedup, Paths
from gyre.trajectory.roles import RoleFinding
from gyre.trajectory.tree import Tree

TOKENS = st.lists(st.integers(0, 2), max_size=6)


@st.composite
def media(draw: st.DrawFn, length: int) -> tuple[Media, ...]:
    """Media in an input of `length` tokens, of few contents."""
    found, free = [], 0
    while free < length and draw(st.integers(0, 3)) == 0:
        position = draw(st.integers(free, length - 1))
        size = draw(st.integers(1, length - position))
        found.append(Media(position, size, draw(st.sampled_from("xy"))))
        free = position + size
    return tuple(found)


@st.composite
def call_lists(draw: st.DrawFn, labelled: bool = True) -> list[CallRecord]:
    """Calls of one execution in commit order: most go on from an earlier call's context, all over few tokens."""
    calls: list[CallRecord] = []
    for row in range(draw(st.integers(0, 10))):
        earlier = draw(st.sampled_from(calls)) if calls and draw(st.booleans()) else None
        context = [] if earlier is None else [*earlier.input_ids.tolist(), *earlier.output_ids.tolist()]
        kept = context[: draw(st.integers(0, len(context)))] if context and draw(st.booleans()) else context
        inputs = (kept + draw(TOKENS)) or [0]
        outputs = draw(TOKENS)
        shown = earlier.media if earlier is not None and len(inputs) >= len(context) else draw(media(len(inputs)))
        by_policy = draw(st.integers(0, 4)) > 0
        steps = st.lists(st.integers(0, 8), min_size=len(outputs), max_size=len(outputs))
        versions = np.array(draw(steps), np.int32) if draw(st.booleans()) else None
        calls.append(
            record(
                3 * row,
                inputs,
                outputs,
                logprobs=np.array(draw(steps), np.float32) / -8 if by_policy else None,
                versions=versions,
                finish=draw(st.sampled_from([Finish.STOP, Finish.STOP, Finish.ABORT, Finish.ERROR])),
                role=draw(st.sampled_from(Role)) if labelled else None,
                by_policy=by_policy,
                media=shown,
            )
        )
    return calls


@given(call_lists())
def test_every_token_stands_once_with_its_owner(calls: list[CallRecord]) -> None:
    tree, oracle = build_tree(calls, "e"), TrieOracle(calls)
    assert edges(tree) == oracle.edges
    assert tree.unique_tokens == len(oracle.edges)
    assert tree.duplicate_tokens == oracle.duplicate_tokens
    assert tree.max_logprob_difference == oracle.max_logprob_difference


@given(call_lists())
def test_calls_leaves_and_tips_are_where_their_tokens_are(calls: list[CallRecord]) -> None:
    tree, oracle = build_tree(calls, "e"), TrieOracle(calls)
    paths = node_paths(tree)
    assert list(tree.calls.call_id) == [call.call_id for call in oracle.calls]
    assert {found.call_id for found in tree.refused} == oracle.dropped
    assert {found.reason for found in tree.refused} <= {Reason.ABORT_WITHOUT_CONTINUATION}
    for row, call in enumerate(oracle.calls):
        at = tree.calls
        assert tip(tree, paths, at.input_node[row], at.input_offset[row]) == input_path(call)
        assert tip(tree, paths, at.output_node[row], at.output_offset[row]) == whole_path(call)
        assert at.trainable[row] == oracle.is_trainable(call)
    assert {paths[node] for node in tree.leaf_node} == oracle.leaves
    for leaf, node in enumerate(tree.leaf_node):
        assert tree.calls.call_id[tree.leaf_call[leaf]] == oracle.first_call_at(paths[node])
        assert list(Role)[tree.leaf_role[leaf]] is oracle.role_at(paths[node])


@given(call_lists())
def test_nodes_are_as_long_as_they_can_be_and_depth_first(calls: list[CallRecord]) -> None:
    tree = build_tree(calls, "e")
    paths = node_paths(tree)
    nodes = range(len(paths))
    kept = [whole_path(call) for call in TrieOracle(calls).calls]
    entry = [path[: depth + 1] for path, depth in zip(paths, tree.node_depth.tolist(), strict=True)]
    first_call = [next(row for row, whole in enumerate(kept) if whole[: len(path)] == path) for path in entry]
    for node in nodes:
        below = [other for other in nodes if other != node and paths[other][: len(paths[node])] == paths[node]]
        assert below == list(range(node + 1, tree.node_end[node]))
        children = [other for other in below if tree.node_parent[other] == node]
        assert [first_call[child] for child in children] == sorted(first_call[child] for child in children)
        assert len(children) != 1 or tree.node_owner[children[0]] != tree.node_owner[node]
    roots = [node for node in nodes if tree.node_parent[node] < 0]
    assert [first_call[root] for root in roots] == sorted(first_call[root] for root in roots)


@given(call_lists(), st.data())
def test_arrival_order_and_trees_made_in_between_change_nothing(calls: list[CallRecord], data: st.DataObject) -> None:
    builder = TreeBuilder("e")
    for call in data.draw(st.permutations(calls)):
        assert builder.add(call) is None
        if data.draw(st.booleans()):
            builder.tree()
    expected = build_tree(calls, "e")
    assert_same(builder.tree(), expected)
    assert_same(builder.close(), expected)
    assert_same(builder.tree(), build_tree([], "e"))  # empty, and good for another run
    for call in calls:
        builder.add(call)
    assert_same(builder.tree(), expected)


@given(call_lists(labelled=False))
def test_roles_are_found_from_the_nearest_earlier_calls(calls: list[CallRecord]) -> None:
    seen: list[CallLinks] = []

    def all_main(links: CallLinks) -> list[RoleFinding]:
        seen.append(links)
        return [RoleFinding(Role.MAIN, "told")] * len(links)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "find_roles", all_main)
        tree = build_tree(calls, "e")
    oracle = TrieOracle(calls, {call.call_id: Role.MAIN for call in calls})
    assert edges(tree) == oracle.edges
    assert set(tree.calls.role_reason) <= {"told"}
    for links in seen:
        nearest = [nearest_earlier_call(oracle.calls, row) for row in range(len(oracle.calls))]
        assert list(zip(links.parent.tolist(), links.shared_tokens.tolist(), strict=True)) == nearest
        assert links.input_tokens.tolist() == [len(call.input_ids) for call in oracle.calls]
        assert links.output_tokens.tolist() == [len(call.output_ids) for call in oracle.calls]
    assert len(seen) == (1 if oracle.calls else 0)


def trained(tree: Tree, order: list[int], dedup: Dedup) -> list[set[tuple[object, ...]]]:
    """Return the paths of the tokens that each selected leaf trains."""
    paths = node_paths(tree)
    selected = [paths[tree.leaf_node[leaf]] for leaf in order]
    length = np.array([len(path) for path in selected], np.int64)
    rows = expand(tree, Paths(np.array(order, np.int32), length, dedup))
    return [
        {path[: at + 1] for at in np.flatnonzero(rows.loss_mask[rows.row_start[row] : rows.row_start[row + 1]])}
        for row, path in enumerate(selected)
    ]


@given(call_lists(), st.data())
def test_selected_paths_train_each_token_or_output_once(calls: list[CallRecord], data: st.DataObject) -> None:
    tree, oracle = build_tree(calls, "e"), TrieOracle(calls)
    order = data.draw(st.permutations(range(len(tree.leaf_node))))
    order = order[: data.draw(st.integers(0, len(order)))]
    paths = node_paths(tree)
    selected = [paths[tree.leaf_node[leaf]] for leaf in order]
    assert trained(tree, order, Dedup.TOKEN) == oracle.trained_by_token(selected)
    assert trained(tree, order, Dedup.SEGMENT) == oracle.trained_by_segment(selected)
