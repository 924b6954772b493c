"""Micro-steps of rows: every row once, no bin above the budget, few bins."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packing_samples import Trie, random_samples, samples_of, samples_strategy

from gyre.errors import InputError
from gyre.trajectory.packing import RowPacking, TreePacking, pack_rows, pack_trees
from gyre.trajectory.packing.bins import first_fit_decreasing
from gyre.trajectory.samples import Samples


def first_fit_reference(sizes: list[int], budget: int) -> list[list[int]]:
    """First fit, largest first, as a textbook has it."""
    bins: list[list[int]] = []
    for item in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        room = (held for held in bins if sum(sizes[i] for i in held) + sizes[item] <= budget)
        held = next(room, None)
        if held is None:
            bins.append([item])
        else:
            held.append(item)
    return [sorted(held) for held in bins]


def pack(kind: str, samples: Samples, budget: int) -> RowPacking | TreePacking:
    return (pack_rows if kind == "rows" else pack_trees)(samples, budget, oversize="alone")


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(40, 80))
def test_bins_are_those_of_the_textbook(sizes: list[int], budget: int) -> None:
    bins = first_fit_decreasing(np.array(sizes, np.int64), budget)
    found = [bins.items[a:b].tolist() for a, b in zip(bins.start[:-1], bins.start[1:], strict=True)]
    assert found == first_fit_reference(sizes, budget)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=7), st.integers(40, 60))
def test_bins_are_near_the_fewest_possible(sizes: list[int], budget: int) -> None:
    """Dosa's bound against the optimum, found by trying everything; no packing beats the total over the budget."""
    fewest = len(sizes)

    def place(item: int, rooms: list[int]) -> None:
        nonlocal fewest
        if len(rooms) >= fewest:
            return
        if item == len(sizes):
            fewest = len(rooms)
            return
        for index, room in enumerate(rooms):
            if room >= sizes[item]:
                place(item + 1, [*rooms[:index], room - sizes[item], *rooms[index + 1 :]])
        place(item + 1, [*rooms, budget - sizes[item]])

    place(0, [])
    bins = len(first_fit_decreasing(np.array(sizes, np.int64), budget).start) - 1
    assert -(-sum(sizes) // budget) <= fewest <= bins
    assert bins <= 11 / 9 * fewest + 2 / 3


@pytest.mark.parametrize("kind", ["rows", "trees"])
@given(samples=samples_strategy(), budget=st.integers(40, 120))
def test_every_row_stands_in_one_micro_step_within_the_budget(kind: str, samples: Samples, budget: int) -> None:
    packing = pack(kind, samples, budget)
    assert sorted(packing.rows.tolist()) == list(range(samples.rows))
    steps = list(packing)
    assert [len(step) for step in steps] == packing.step_tokens.tolist()
    assert max(map(len, steps)) <= budget
    assert sum(len(step.rows) for step in steps) == samples.rows
    assert len(packing) >= -(-sum(map(len, steps)) // budget)


@given(samples=samples_strategy(), budget=st.integers(40, 120))
def test_packed_rows_are_the_rows(samples: Samples, budget: int) -> None:
    positions, weights = samples.positions(), samples.loss_weights()
    for step in pack_rows(samples, budget):
        assert step.cu_seqlens[-1] == len(step)
        assert step.max_seqlen == max(np.diff(step.cu_seqlens))
        for k, row in enumerate(step.rows):
            here, there = slice(step.cu_seqlens[k], step.cu_seqlens[k + 1]), samples.row(row)
            for name in ("tokens", "loss_mask", "logprobs", "versions"):
                np.testing.assert_array_equal(getattr(step, name)[here], getattr(samples, name)[there])
            np.testing.assert_array_equal(step.positions[here], positions[there])
            np.testing.assert_array_equal(step.loss_weights[here], weights[there].astype(np.float32))
            np.testing.assert_array_equal(step.sequence[here], np.where(samples.loss_mask[there], k, -1))
            np.testing.assert_array_equal(
                step.predictor[here], [-1, *range(step.cu_seqlens[k], step.cu_seqlens[k + 1] - 1)]
            )
            assert step.row_execution[k] == samples.row_execution[row]


@pytest.mark.parametrize("kind", ["rows", "trees"])
def test_arrays_have_the_types_that_kernels_take(kind: str) -> None:
    step = pack(kind, random_samples(1), 100).micro_step(0)
    for name in ("tokens", "positions", "predictor", "versions", "sequence", "row_execution"):
        assert getattr(step, name).dtype == np.int32, name
    for name in ("loss_weights", "mean_weights", "logprobs"):
        assert getattr(step, name).dtype == np.float32, name
    assert step.loss_mask.dtype == np.bool_


@pytest.mark.parametrize("kind", ["rows", "trees"])
def test_packing_twice_gives_the_same(kind: str) -> None:
    first, second = (pack(kind, random_samples(7, executions=5), 64) for _ in range(2))
    np.testing.assert_array_equal(first.rows, second.rows)
    np.testing.assert_array_equal(first.step_start, second.step_start)


@pytest.mark.parametrize("pack_samples", [pack_rows, pack_trees])
def test_a_row_above_the_budget_is_refused_by_name_or_stands_alone(pack_samples) -> None:  # type: ignore[no-untyped-def]
    long = Trie(tokens=[1] * 12, parents=list(range(-1, 11)), sampled=[True] * 12)
    short = Trie(tokens=[1, 2], parents=[-1, 0], sampled=[False, True])
    samples = samples_of([short, long, short], [[1], [11], [1]], [1.0, 1.0, 1.0])
    with pytest.raises(InputError, match=r"execution 'execution-1' has 12 tokens.*max_tokens"):
        pack_samples(samples, 10)
    packing = pack_samples(samples, 10, oversize="alone")
    assert [step.rows.tolist() for step in packing] == [[1], [0, 2]]


@pytest.mark.parametrize("pack_samples", [pack_rows, pack_trees])
def test_budgets_and_rows_that_make_no_sense_are_refused(pack_samples) -> None:  # type: ignore[no-untyped-def]
    samples = random_samples(3)
    for budget in (0, -5, 2**31):
        with pytest.raises(InputError, match="token_budget"):
            pack_samples(samples, budget, oversize="alone")
    starts, executions = np.insert(samples.row_start, 1, 0), np.insert(samples.row_execution, 0, 0)
    empty = replace(samples, row_start=starts, row_execution=executions)
    with pytest.raises(InputError, match=r"row 0 .* has no token"):
        pack_samples(empty, 100)


@pytest.mark.parametrize("pack_samples", [pack_rows, pack_trees])
def test_no_rows_give_no_micro_step(pack_samples) -> None:  # type: ignore[no-untyped-def]
    assert list(pack_samples(samples_of([], [], []), 10)) == []


def test_packing_needs_no_torch_and_objectives_say_that_they_do() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import gyre.trajectory.packing\n"
        "try:\n    import gyre.trajectory.objectives\n"
        "except ImportError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'gyre[torch]'" in said
