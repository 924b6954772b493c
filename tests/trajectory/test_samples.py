"""Weights of a step's samples: losses worked out by hand, and coefficients added up by prefix."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tree_oracle import call_lists
from tree_reading import Pair, record, records
from trie_oracle import TrieOracle

from gyre.errors import InputError
from gyre.role import Role
from gyre.trajectory.advantages import Baseline
from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.making import NO_ADVANTAGE, NO_SCORE, NOTHING_TRAINABLE, SampleBuilder, make_samples
from gyre.trajectory.paths import Dedup
from gyre.trajectory.samples import TOKEN_FIELDS, Samples, concat, remask
from gyre.trajectory.selection import Selection
from gyre.trajectory.tree import Tree

Item = tuple[ExecutionRecord, Tree]
ALL = Selection(mode="all")


def item(name: str, score: float | None, calls: list[CallRecord], group: str = "g") -> Item:
    """An ended execution and its tree."""
    return ExecutionRecord(name, group, score), build_tree([replace(call, execution=name) for call in calls], name)


def answers(*lengths: int) -> list[CallRecord]:
    """Answers of these lengths to one prompt, with nothing in common."""
    return records(*(([1], [10 + 1000 * i + j for j in range(length)]) for i, length in enumerate(lengths)))


def loss(samples: Samples, per_token: float = 1.0) -> float:
    """The sum over tokens of weight times a loss that is the same for each."""
    return math.fsum(samples.loss_weights() * per_token)


STEP = {"A": (50, 100), "B": (30, 30, 30), "C": (40,)}


def even_step() -> Samples:
    """Executions of several samples, lengths and counts, each of advantage 1."""
    items = [item(name, None, answers(*lengths)) for name, lengths in STEP.items()]
    return make_samples(items, ALL, Baseline.MEAN, advantages=dict.fromkeys(STEP, 1.0))


def test_each_execution_counts_once_however_many_samples_and_tokens_it_has() -> None:
    samples = even_step()
    assert samples.rows == 6
    assert samples.executions.trained_tokens.tolist() == [150, 90, 40]
    assert loss(samples) == pytest.approx(1.0, abs=1e-15)
    for e in range(3):
        assert loss(samples.select_rows(np.flatnonzero(samples.row_execution == e))) == pytest.approx(1 / 3, abs=1e-15)


def test_the_baseline_is_over_executions_not_over_samples() -> None:
    samples = make_samples([item("A", 1.0, answers(5)), item("B", 0.0, answers(2, 3, 4))], ALL, Baseline.MEAN)
    assert samples.executions.advantage.tolist() == [0.5, -0.5]
    assert samples.row_execution.tolist() == [0, 1, 1, 1]


def test_a_missing_score_drops_the_execution() -> None:
    items = [
        item("A", 1.0, answers(5)),
        item("B", None, answers(3)),
        item("C", 0.0, answers(2)),
        item("D", math.nan, []),
    ]
    samples = make_samples(items, ALL, Baseline.MEAN)
    assert samples.executions.execution == ("A", "C")
    assert samples.executions.advantage.tolist() == [0.5, -0.5]
    assert samples.executions.token_weight.tolist() == [0.5 / (5 * 2), -0.5 / (2 * 2)]
    assert samples.dropped == {"B": NO_SCORE, "D": NO_SCORE}


def test_an_execution_that_trains_nothing_is_in_the_baseline_but_not_in_the_count() -> None:
    judge = record(0, [1], [2], by_policy=False, logprobs=None)
    items = [item("A", 1.0, answers(5)), item("B", 0.0, [judge]), item("C", 0.0, []), item("D", 1.0, answers(2))]
    samples = make_samples(items, ALL, Baseline.MEAN)
    assert samples.executions.advantage.tolist() == [0.5, 0.5]
    assert samples.executions.token_weight.tolist() == [0.5 / (5 * 2), 0.5 / (2 * 2)]
    assert samples.dropped == {"B": NOTHING_TRAINABLE, "C": NOTHING_TRAINABLE}


def test_equal_scores_give_no_loss_and_no_nan() -> None:
    samples = make_samples([item("A", 1.0, answers(5)), item("B", 1.0, answers(2))], ALL, Baseline.MEAN_STD)
    assert samples.loss_weights().tolist() == [0.0] * 9
    assert samples.executions.counted == 2


def test_equal_outputs_of_two_executions_both_count() -> None:
    samples = make_samples(
        [item(name, None, answers(4)) for name in "AB"], ALL, Baseline.NONE, advantages={"A": 1, "B": 1}
    )
    assert samples.executions.trained_tokens.tolist() == [4, 4]
    assert loss(samples) == pytest.approx(1.0, abs=1e-15)


def test_a_summary_that_was_rejected_does_not_claim_the_prefix() -> None:
    """The attempt was committed first, and is not selected: the main path trains its first output."""
    calls = [record(0, [1, 2, 9], [5], role=Role.MAIN_SUMMARY), record(1, [1], [2]), record(2, [1, 2, 3], [4])]
    samples = make_samples([item("A", None, calls)], Selection(max_paths=1), Baseline.NONE, advantages={"A": 1.0})
    assert samples.tokens.tolist() == [1, 2, 3, 4]
    assert samples.loss_mask.tolist() == [False, True, False, True]
    both = make_samples([item("A", None, calls)], Selection(), Baseline.NONE, advantages={"A": 1.0})
    assert both.loss_mask.tolist() == [False, True, False, True, False, False, False, True]
    assert both.row_role.tolist() == [0, 1]


@pytest.mark.parametrize(("dedup", "trained"), [(Dedup.TOKEN, 3), (Dedup.SEGMENT, 4)])
def test_outputs_that_share_a_token(dedup: Dedup, trained: int) -> None:
    calls: list[Pair] = [([1], [2, 3]), ([1], [2, 4])]
    selection = Selection(dedup=dedup)
    samples = make_samples([item("A", None, records(*calls))], selection, Baseline.NONE, advantages={"A": 1.0})
    assert samples.executions.trained_tokens.tolist() == [trained]
    assert loss(samples) == pytest.approx(1.0, abs=1e-15)


def test_masking_afterwards_counts_again() -> None:
    samples = even_step()
    keep = np.ones(len(samples.tokens), np.bool_)
    keep[samples.row(0)] = False  # one sample of A
    keep[np.flatnonzero(samples.row_execution[np.repeat(np.arange(6), np.diff(samples.row_start))] == 2)] = False  # C
    masked = remask(samples, keep)
    assert sorted(masked.executions.trained_tokens.tolist()) == [0, 90, 100]
    assert masked.executions.token_weight.tolist() == [1 / (100 * 2), 1 / (90 * 2), 0.0]
    assert loss(masked) == pytest.approx(1.0, abs=1e-15)
    assert not masked.logprobs[~masked.loss_mask].any()
    assert (masked.versions[~masked.loss_mask] == -1).all()
    with pytest.raises(InputError, match="part of a split"):
        remask(samples.select_rows(np.array([0])), np.ones(51, np.bool_))


@st.composite
def steps(draw: st.DrawFn) -> tuple[dict[str, list[CallRecord]], list[Item]]:
    """Calls by execution, and the ended executions, of two groups. Without media: tokens alone tell prefixes apart."""
    calls = {f"e{i}": draw(call_lists()) for i in range(draw(st.integers(1, 4)))}
    calls = {name: [replace(call, media=()) for call in made] for name, made in calls.items()}
    scores = st.sampled_from([0.0, 1.0, 0.25, None])
    return calls, [item(name, draw(scores), made, draw(st.sampled_from("gh"))) for name, made in calls.items()]


@st.composite
def selections(draw: st.DrawFn) -> Selection:
    """Bounded or whole, cut or not."""
    return Selection(
        mode=draw(st.sampled_from(["bounded", "all"])),
        max_paths=draw(st.integers(1, 3)),
        max_tokens=draw(st.none() | st.integers(3, 20)),
    )


@given(steps(), selections(), st.sampled_from(Baseline))
def test_coefficients_of_prefixes_are_the_executions_weight_or_nothing(
    step: tuple[dict[str, list[CallRecord]], list[Item]], selection: Selection, baseline: Baseline
) -> None:
    """Weights of all rows, added up by (execution, prefix, token) as the rows' tokens spell them."""
    calls, items = step
    samples = make_samples(items, selection, baseline)
    weights = samples.loss_weights()
    coefficient: dict[tuple[str, tuple[int, ...]], float] = defaultdict(float)
    trained: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for row, e in enumerate(samples.row_execution):
        name, at = samples.executions.execution[e], samples.row(row)
        tokens = tuple(samples.tokens[at].tolist())
        for depth in range(len(tokens)):
            coefficient[name, tokens[: depth + 1]] += weights[at][depth]
            if samples.loss_mask[at][depth]:
                assert tokens[: depth + 1] not in trained[name], "trained twice"
                trained[name].add(tokens[: depth + 1])
    score = {ended.execution: ended.score for ended, _ in items if ended.score is not None}
    assert set(trained) == set(samples.executions.execution) == set(score) - set(samples.dropped)
    for e, name in enumerate(samples.executions.execution):
        oracle = TrieOracle(calls[name])
        on_rows = {edge for owner, edge in coefficient if owner == name}
        assert trained[name] == {edge for edge in on_rows if oracle.edges[edge].owner is not None}
        each = samples.executions.advantage[e] / (len(trained[name]) * len(trained))
        for (owner, edge), found in coefficient.items():
            if owner == name:
                assert found == (each if edge in trained[name] else 0.0)


def by_name(samples: Samples) -> dict[str, list[Any]]:
    """Each execution's advantage, N_e, weight and rows."""
    table = samples.executions
    found: dict[str, list[Any]] = {
        name: [table.advantage[e], table.trained_tokens[e], table.token_weight[e]]
        for e, name in enumerate(table.execution)
    }
    for row, e in enumerate(samples.row_execution):
        columns = [getattr(samples, field)[samples.row(row)].tolist() for field in TOKEN_FIELDS]
        found[table.execution[e]].append((samples.row_role[row], columns))
    return found


@given(steps(), selections(), st.data())
def test_the_order_of_executions_and_of_calls_changes_nothing(
    step: tuple[dict[str, list[CallRecord]], list[Item]], selection: Selection, data: st.DataObject
) -> None:
    calls, items = step
    moved = []
    for ended, _ in data.draw(st.permutations(items)):
        shuffled = [replace(c, execution=ended.execution) for c in data.draw(st.permutations(calls[ended.execution]))]
        moved.append((ended, build_tree(shuffled, ended.execution)))
    one, other = make_samples(items, selection, Baseline.NONE), make_samples(moved, selection, Baseline.NONE)
    assert by_name(one) == by_name(other)
    assert one.dropped == other.dropped


@given(steps(), selections(), st.data())
def test_a_split_into_micro_batches_changes_no_loss(
    step: tuple[dict[str, list[CallRecord]], list[Item]], selection: Selection, data: st.DataObject
) -> None:
    """Rows dealt out to parts in any way: weights stay, losses add up, and the parts join to the same rows."""
    samples = make_samples(step[1], selection, Baseline.MEAN)
    part_of = np.array([data.draw(st.integers(0, 2)) for _ in range(samples.rows)], np.int64)
    parts = [samples.select_rows(np.flatnonzero(part_of == part)) for part in range(3)]
    assert math.fsum(loss(part, 0.7) for part in parts) == pytest.approx(loss(samples, 0.7), abs=1e-12)
    joined = concat(parts)
    back = np.argsort(np.argsort(part_of, kind="stable"), kind="stable")
    assert by_name(joined.select_rows(back)) == by_name(samples)


@given(steps(), selections())
def test_groups_made_apart_join_to_the_step(
    step: tuple[dict[str, list[CallRecord]], list[Item]], selection: Selection
) -> None:
    """Joined, or told how many executions count; whichever way the weights are those of the whole."""
    items = step[1]
    whole = make_samples(items, selection, Baseline.MEAN)
    groups = sorted({ended.group for ended, _ in items})
    parts = [make_samples([i for i in items if i[0].group == group], selection, Baseline.MEAN) for group in groups]
    joined = concat(parts)
    assert by_name(joined) == by_name(whole)
    assert joined.dropped == whole.dropped
    counted = sum(part.executions.counted for part in parts)
    assert by_name(concat([part.weighted(counted) for part in parts])) == by_name(whole)
    for part in parts:
        assert by_name(part.weighted(max(counted, 1))).items() <= by_name(whole).items()


def test_what_cannot_be_joined_is_refused() -> None:
    one = make_samples([item("A", 1.0, answers(2)), item("B", 0.0, answers(3))], ALL, Baseline.MEAN)
    other = make_samples([item("B", 1.0, answers(2))], ALL, Baseline.MEAN)
    with pytest.raises(InputError, match="execution B is in several"):
        concat([one, other])
    with pytest.raises(InputError, match="no samples"):
        concat([])


def test_a_step_of_nothing() -> None:
    samples = make_samples([item("A", None, answers(2))], ALL, Baseline.MEAN)
    assert samples.rows == 0
    assert samples.loss_weights().tolist() == samples.positions().tolist() == []
    assert samples.row_start.tolist() == [0]
    assert {name: getattr(samples, name).dtype.type for name in TOKEN_FIELDS} == TOKEN_FIELDS
    assert concat([samples, even_step()]).executions.execution == ("A", "B", "C")


@pytest.mark.parametrize(
    ("given_items", "says"),
    [
        ([item("A", 1.0, answers(2))] * 2, "execution A is in the step twice"),
        ([(ExecutionRecord("A", "g", 1.0), build_tree([], "B"))], "execution A: the tree .* of execution B"),
        ([item("A", math.inf, answers(2))], "execution A: its score or advantage is inf"),
    ],
)
def test_faulty_steps_are_refused(given_items: list[Item], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_samples(given_items, ALL, Baseline.MEAN)


def test_given_advantages_take_the_place_of_scores() -> None:
    builder = SampleBuilder(ALL, Baseline.MEAN, advantages={"A": -2.0})
    for name in "AB":
        builder.add(*item(name, 1.0, answers(4)))
    samples = builder.close()
    assert samples.executions.token_weight.tolist() == [-0.5]
    assert samples.executions.score.tolist() == [1.0]
    assert samples.dropped == {"B": NO_ADVANTAGE}
