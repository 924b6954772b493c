"""Micro-steps in which a shared prefix stands once: structure, weights, cuts, savings."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packing_samples import Trie, samples_of, samples_strategy

from gyre.errors import InputError
from gyre.trajectory.advantages import Baseline
from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.making import make_samples
from gyre.trajectory.packing import Load, RowPacking, TreeMicroStep, TreePacking, pack_rows, pack_trees, savings
from gyre.trajectory.paths import Dedup
from gyre.trajectory.samples import Samples
from gyre.trajectory.selection import Mode, Selection

# 0-1-2-3-4 and 0-1-2-5-6-7 and 0-1-2-5-8; sampled: 2, 4, 6 to 8.
FORK = Trie(
    tokens=[10, 11, 12, 13, 14, 15, 16, 17, 18],
    parents=[-1, 0, 1, 2, 3, 2, 5, 6, 5],
    sampled=[False, False, True, False, True, False, True, True, True],
)


def fork(*ends: int) -> Samples:
    return samples_of([FORK], [list(ends)], [2.0])


def keys(step: TreeMicroStep, samples: Samples) -> list[tuple[int, int]]:
    """Execution and edge of each token, from the paths; every token must be on one."""
    found: dict[int, tuple[int, int]] = {}
    for k, row in enumerate(step.rows):
        path = step.path_index[step.path_start[k] : step.path_start[k + 1]]
        for place, edge in zip(path, samples.edges[samples.row(row)], strict=True):
            key = (int(step.row_execution[k]), int(edge))
            assert found.setdefault(int(place), key) == key
    assert len(found) == len(set(found.values())) == len(step)
    return [found[place] for place in range(len(step))]


def test_a_fork_by_hand() -> None:
    step = pack_trees(fork(7, 4, 8), 100).micro_step(0)  # the row that ends at 7 owns token 2
    assert step.tokens.tolist() == [10, 11, 12, 13, 14, 15, 16, 17, 18]
    assert step.positions.tolist() == [0, 1, 2, 3, 4, 3, 4, 5, 4]
    assert step.predictor.tolist() == [-1, 0, 1, 2, 3, 2, 5, 6, 5]
    assert step.attend_until.tolist() == [9, 9, 9, 5, 5, 9, 8, 8, 9]
    assert step.rows.tolist() == [1, 0, 2]  # by leaf
    assert step.sequence.tolist() == [-1, -1, 1, -1, 0, -1, 1, 1, 2]
    np.testing.assert_array_equal(step.loss_weights, np.float32([0, 0, 0.4, 0, 0.4, 0, 0.4, 0.4, 0.4]))
    np.testing.assert_array_equal(step.mean_weights, np.float32([0, 0, 0.2, 0, 0.2, 0, 0.2, 0.2, 0.2]))


def test_a_tree_above_the_budget_is_cut_between_leaves_and_its_prefix_computed_again() -> None:
    packing = pack_trees(fork(7, 4, 8), 7)
    first, second = packing
    assert (first.rows.tolist(), first.tokens.tolist()) == ([0, 2], [10, 11, 12, 15, 16, 17, 18])
    assert (second.rows.tolist(), second.tokens.tolist()) == ([1], [10, 11, 12, 13, 14])
    assert first.loss_mask.tolist() == [False, False, True, False, True, True, True]
    assert second.loss_mask.tolist() == [False, False, False, False, True]  # token 2 is context here


def test_a_tree_is_cut_where_that_saves_a_micro_step() -> None:
    """Three trees of two chains of 5: whole, each would need a micro-step of 17; at 29, whole trees need no more."""
    chains = Trie(tokens=list(range(10)), parents=[-1, 0, 1, 2, 3, -1, 5, 6, 7, 8], sampled=[True] * 10)
    samples = samples_of([chains] * 3, [[4, 9]] * 3, [1.0] * 3)
    packing = pack_trees(samples, 17)
    assert packing.step_tokens.tolist() == [15, 15]
    assert packing.rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert [step.tokens.tolist() for step in pack_trees(samples, 29)] == [[*range(10)] * 2, [*range(10)]]


def test_small_trees_share_a_micro_step_but_no_token() -> None:
    samples = samples_of([FORK, FORK], [[4], [4, 8]], [1.0, -1.0])
    (step,) = pack_trees(samples, 100)
    assert len(step) == 5 + 7
    assert not step.ancestor_mask()[5:, :5].any()


@given(samples=samples_strategy(), budget=st.integers(40, 120))
def test_paths_predictors_and_positions_are_those_of_the_rows(samples: Samples, budget: int) -> None:
    assert_paths_are_rows(samples, budget)


@pytest.mark.parametrize("dedup", Dedup)
@given(
    outputs=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=4), min_size=1, max_size=8),
    data=st.data(),
    max_tokens=st.integers(2, 25),
)
def test_trees_that_were_built_from_calls_pack_too(
    dedup: Dedup, outputs: list[list[int]], data: st.DataObject, max_tokens: int
) -> None:
    """Numbers of edges are as packing needs them, truncated paths and several roots included."""
    contexts: list[list[int]] = [[0], [1, 1]]
    records = []
    for number, output in enumerate(outputs):
        context = data.draw(st.sampled_from(contexts))
        records.append(
            CallRecord(
                execution="e",
                call_id=str(number),
                sequence=number,
                input_ids=np.array(context, np.int32),
                output_ids=np.array(output, np.int32),
                logprobs=np.full(len(output), -0.5, np.float32),
            )
        )
        contexts += [context + output, context + output + [1]]
    selection = Selection(mode=Mode.ALL, max_tokens=max_tokens, dedup=dedup)
    samples = make_samples([(ExecutionRecord("e", "g", 1.0), build_tree(records))], selection, Baseline.NONE)
    assert_paths_are_rows(samples, max_tokens, each_once=dedup is Dedup.TOKEN)


def assert_paths_are_rows(samples: Samples, budget: int, *, each_once: bool = True) -> None:
    for step in pack_trees(samples, budget):
        keys(step, samples)
        for k, row in enumerate(step.rows):
            path = step.path_index[step.path_start[k] : step.path_start[k + 1]]
            np.testing.assert_array_equal(step.tokens[path], samples.tokens[samples.row(row)])
            np.testing.assert_array_equal(step.positions[path], np.arange(len(path)))
            np.testing.assert_array_equal(step.predictor[path], [-1, *path[:-1]])
            own = samples.loss_mask[samples.row(row)]
            if each_once:
                np.testing.assert_array_equal(step.sequence[path[own]], k)
            for name in ("loss_mask", "logprobs", "versions"):
                np.testing.assert_array_equal(
                    getattr(step, name)[path[own]], getattr(samples, name)[samples.row(row)][own]
                )


@given(samples=samples_strategy(), budget=st.integers(40, 80))
def test_the_mask_is_that_of_ancestors(samples: Samples, budget: int) -> None:
    for step in pack_trees(samples, budget):
        sees = np.zeros((len(step), len(step)), np.bool_)
        for query in range(len(step)):
            key = query
            while key >= 0:
                sees[query, key] = True
                key = int(step.predictor[key])
        np.testing.assert_array_equal(step.ancestor_mask(), sees)


@pytest.mark.parametrize("by_segment", [False, True])
@given(data=st.data(), budget=st.integers(40, 80))
def test_weights_of_an_edge_add_up_to_the_samples(by_segment: bool, data: st.DataObject, budget: int) -> None:
    samples = data.draw(samples_strategy(by_segment=by_segment))
    expected: defaultdict[tuple[int, int], float] = defaultdict(float)
    execution = np.repeat(samples.row_execution, np.diff(samples.row_start)).tolist()
    for key, weight in zip(zip(execution, samples.edges.tolist(), strict=True), samples.loss_weights(), strict=True):
        expected[key] += weight
    found: defaultdict[tuple[int, int], float] = defaultdict(float)
    twice = 0
    for step in pack_trees(samples, budget):
        for key, weight in zip(keys(step, samples), step.loss_weights, strict=True):
            found[key] += float(weight)
        twice += step.trained_twice
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[key] for key in expected], list(expected.values()), rtol=1e-6)
    assert by_segment or twice == 0


def test_a_token_that_two_rows_train_stands_once_with_both_weights() -> None:
    samples = samples_of([FORK], [[4, 8]], [1.0], by_segment=True)  # each trains 2 and its own end: N is 4
    (step,) = pack_trees(samples, 100)
    assert step.trained_twice == 1
    np.testing.assert_array_equal(step.loss_weights, np.float32([0, 0, 0.5, 0, 0.25, 0, 0.25]))
    assert sum(row.trained_twice for row in pack_rows(samples, 100)) == 0  # rows keep their own copies


@pytest.mark.parametrize("pack", [pack_rows, pack_trees])
def test_weights_without_the_advantage_are_of_the_whole_step(pack: Callable[..., RowPacking | TreePacking]) -> None:
    """A part of a step of 10 executions; its advantage is 0, so that its weights alone do not tell."""
    samples = samples_of([FORK], [[4, 8]], [0.0]).weighted(10)
    (step,) = pack(samples, 100)
    assert not step.loss_weights.any()
    np.testing.assert_array_equal(step.mean_weights[step.loss_mask], np.float32(1 / (3 * 10)))
    assert not step.mean_weights[~step.loss_mask].any()


def test_edges_that_are_not_depth_first_are_refused() -> None:
    samples = fork(4, 8)
    with pytest.raises(InputError, match=r"row 0 of execution 'execution-0'.*depth first"):
        pack_trees(replace(samples, edges=np.where(samples.edges == 3, 40, samples.edges)), 100)
    # The row's own edges rise, but the branch lies inside another's range.
    with pytest.raises(InputError, match="depth first"):
        pack_trees(replace(samples, edges=np.where(samples.edges == 4, 6, samples.edges)), 100)


@given(samples=samples_strategy(), budget=st.integers(40, 120))
def test_savings_count_what_the_micro_steps_hold(samples: Samples, budget: int) -> None:
    rows, trees = pack_rows(samples, budget), pack_trees(samples, budget)
    result = savings(rows, trees, Load.of_lengths(np.array([3, 4])))
    assert result.calls is not None
    assert (result.calls.tokens, result.calls.attention) == (7, 1 + 2 + 3 + 1 + 2 + 3 + 4)
    for load, packing in ((result.rows, rows), (result.trees, trees)):
        assert load.micro_steps == len(packing)
        assert load.tokens == sum(len(step) for step in packing)
        assert load.attention == sum(int(step.positions.sum()) + len(step) for step in packing)
        assert load.filled == pytest.approx(load.tokens / (budget * len(packing)))
    assert result.trees.attention == sum(int(step.ancestor_mask().sum()) for step in trees)
    assert result.selected.tokens == result.rows.tokens == len(samples.tokens)
    assert json.loads(json.dumps(result.to_json()))["trees"]["tokens"] == result.trees.tokens


def test_savings_of_other_samples_are_refused() -> None:
    with pytest.raises(InputError, match="same samples"):
        savings(pack_rows(fork(4), 10), pack_trees(fork(4), 10))
