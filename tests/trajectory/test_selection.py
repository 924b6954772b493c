"""Which paths are selected: the rule's closed forms, and a plain loop over prefixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chisquare
from selection_reference import ReferenceSelection
from test_tree_oracle import call_lists
from tree_reading import node_paths, record, records
from trie_oracle import TrieOracle

from gyre.errors import InputError
from gyre.leaf_drawing import path_uniforms
from gyre.role import Role
from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord
from gyre.trajectory.paths import Dedup
from gyre.trajectory.selection import Mode, OverLength, Selection, select
from gyre.trajectory.tree import Tree


def last_tokens(tree: Tree, selection: Selection) -> list[int]:
    """Last token of each selected path, before truncation."""
    paths = node_paths(tree)
    return [paths[tree.leaf_node[leaf]][-1] for leaf in select(tree, selection).leaf]  # type: ignore[misc]


def test_classes_come_before_size() -> None:
    """Five short main paths, six long ones of sub-agents, five paths wanted: the main ones."""
    subs = [record(i, [2], [100 + i] * 50, role=Role.SUB_AGENT) for i in range(6)]
    mains = [record(6 + i, [1], [10 + i]) for i in range(5)]
    for seed in range(20):
        chosen = last_tokens(build_tree(subs + mains), Selection(seed=seed))
        assert sorted(chosen) == [10, 11, 12, 13, 14]


def test_all_four_classes_come_in_their_order_and_side_calls_never() -> None:
    calls = [record(i, [1], [10 + i], role=role) for i, role in enumerate(reversed(Role))]
    assert last_tokens(build_tree(calls), Selection()) == [14, 13, 12, 11]
    assert last_tokens(build_tree(calls), Selection(mode="all")) == [14, 13, 12, 11]
    assert last_tokens(build_tree(calls), Selection(mode="main_only")) == [14]


def test_a_side_call_at_the_end_of_a_thread_does_not_hide_it() -> None:
    calls = [record(0, [1], [2]), record(1, [1, 2, 3], [4], role=Role.SIDE), record(2, [1], [5], role=Role.SUB_AGENT)]
    assert last_tokens(build_tree(calls), Selection()) == [4, 5]


def test_paths_are_drawn_in_proportion_to_what_they_add() -> None:
    """Orders of three paths that share output tokens, over seeds, against the product of their exact chances."""
    calls = records(([1], [2, 3, 4]), ([1], [2, 3, 5, 6]), ([1], [7]))
    tree = build_tree(calls)
    whole = [(1, 2, 3, 4), (1, 2, 3, 5, 6), (1, 7)]
    paths = [{path[:i] for i in range(2, len(path) + 1)} for path in whole]
    ends = [4, 6, 7]
    chance: dict[tuple[int, ...], float] = {}
    for order in permutations(range(3)):
        taken: set[Any] = set()
        probability = 1.0
        for leaf in order:
            total = sum(len(path - taken) for path in paths)
            probability *= len(paths[leaf] - taken) / total
            taken |= paths[leaf]
        chance[tuple(ends[leaf] for leaf in order)] = probability
    seen = dict.fromkeys(chance, 0)
    for seed in range(3000):
        seen[tuple(last_tokens(tree, Selection(seed=seed)))] += 1
    assert chisquare(list(seen.values()), [3000 * p for p in chance.values()]).pvalue > 0.001


def test_draws_depend_on_the_execution_and_the_seed_alone() -> None:
    together = path_uniforms(7, ["a", "b", "c"], 4)
    assert np.array_equal(path_uniforms(7, ["c"], 2)[0], together[2, :2])
    assert len(np.unique(np.concatenate((together, path_uniforms(8, ["a", "b", "c"], 4))))) == 24
    many = path_uniforms(-1, [f"e{i}" for i in range(2000)], 5)
    counts, _ = np.histogram(many, bins=20, range=(0, 1))
    assert chisquare(counts).pvalue > 0.001
    assert np.abs(np.corrcoef(many.T) - np.eye(5)).max() < 4 / np.sqrt(2000)


@st.composite
def settings(draw: st.DrawFn) -> Selection:
    """Settings of the built-in rules."""
    return Selection(
        mode=draw(st.sampled_from(Mode)),
        max_paths=draw(st.integers(1, 5)),
        seed=draw(st.integers(0, 5)),
        max_tokens=draw(st.none() | st.integers(2, 15)),
        over_length=draw(st.sampled_from(OverLength)),
        dedup=draw(st.sampled_from(Dedup)),
    )


@given(call_lists(), settings())
def test_selection_is_that_of_a_plain_loop_over_prefixes(calls: list[CallRecord], selection: Selection) -> None:
    tree = build_tree(calls, "e")
    paths = node_paths(tree)
    leaves = [paths[node] for node in tree.leaf_node]
    selected = select(tree, selection)
    assert selected.leaf.tolist() == ReferenceSelection(TrieOracle(calls), selection).selected(leaves)
    limit = selection.max_tokens or 10**9
    assert selected.length.tolist() == [min(len(leaves[leaf]), limit) for leaf in selected.leaf]


def test_what_is_cut_off_counts_for_nothing() -> None:
    """Cut to 3 tokens both paths have one trainable token: they come first equally often, not as 4 to 1."""
    tree = build_tree(records(([1], [2]), ([1, 2, 5, 5], [6, 6, 6]), ([1], [3])))
    firsts = [last_tokens(tree, Selection(seed=seed, max_paths=1, max_tokens=3))[0] for seed in range(400)]
    assert firsts.count(6) == pytest.approx(200, abs=3.3 * 10)
    dropping = Selection(max_tokens=3, over_length="drop")
    assert last_tokens(tree, dropping) == [3]
    assert last_tokens(tree, Selection(max_tokens=7, over_length="drop", mode="all")) == [6, 3]


def test_a_path_whose_outputs_are_all_cut_off_is_not_selected() -> None:
    tree = build_tree(records(([1, 1, 1, 1], [2]), ([3], [4])))
    assert last_tokens(tree, Selection(max_tokens=4)) == [4]
    assert last_tokens(tree, Selection(max_tokens=4, dedup="segment", mode="all")) == [4]


def last_leaf_first(tree: Tree, selection: Selection) -> Sequence[int]:
    """A rule of a user's own."""
    return list(range(len(tree.leaf_node)))[::-1][: selection.max_paths]


@pytest.mark.parametrize("mode", [last_leaf_first, "test_selection:last_leaf_first"])
def test_a_users_own_rule_decides(mode: str | Callable[..., Any]) -> None:
    tree = build_tree(records(([1], [2]), ([1], [3]), ([1], [4])))
    assert last_tokens(tree, Selection(mode=mode, max_paths=2)) == [4, 3]


def fails(tree: Tree, selection: Selection) -> list[int]:
    """A rule with a fault."""
    raise RuntimeError("no luck")


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("nowhere:rule", "nowhere:rule cannot be loaded"),
        ("math:pi", "math:pi is no function"),
        (fails, "fails, execution e: it failed: RuntimeError: no luck"),
        (lambda tree, selection: [0.5], "must return a list of whole numbers"),
        (lambda tree, selection: [[0]], "must return a list of whole numbers"),
        (lambda tree, selection: [[0], [0, 1]], "it failed: ValueError"),
        (lambda tree, selection: [2], "there is no leaf 2; the tree has 2"),
        (lambda tree, selection: [-1], "there is no leaf -1"),
        (lambda tree, selection: [1, 1], "more than once"),
    ],
)
def test_faults_of_a_users_own_rule_are_named(mode: Any, says: str) -> None:
    tree = build_tree(records(([1], [2]), ([1], [3])))
    with pytest.raises(InputError, match=says):
        select(tree, Selection(mode=mode))


@pytest.mark.parametrize(
    "field", [{"mode": "best"}, {"max_paths": 0}, {"max_tokens": 1}, {"dedup": "row"}, {"budget": 5}]
)
def test_impossible_settings_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Selection(**field)


def test_nothing_to_select() -> None:
    for mode in Mode:
        assert len(select(build_tree([], "e"), Selection(mode=mode))) == 0
    assert len(select(build_tree([], "e"), Selection(mode=lambda tree, selection: []))) == 0


def test_hundreds_of_levels_are_selected_whole() -> None:
    """A chain of 400 turns, each with an answer beside it that was thrown away."""
    context, calls = [1], []
    for turn in range(400):
        calls.append(record(2 * turn, context, [5, 6]))
        calls.append(record(2 * turn + 1, context, [7]))
        context = [*context, 5, 6, 8]
    tree = build_tree(calls)
    everything = select(tree, Selection(mode="all"))
    assert len(everything) == 401
    assert everything.length.max() == 1 + 400 * 3 - 1
