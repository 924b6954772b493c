"""Which executions a dispatched group replays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_runs import program

from gyre.config import GroupOrder
from gyre.sim.sampler import GroupSampler, ungrouped


def rows_of(sampler: GroupSampler, group: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return sampler.rows(group, sampler.tasks.task(group))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(1, 6), st.integers(0, 99))
def test_an_epoch_holds_every_group_once_and_its_members_only(sizes: list[int], size: int, seed: int) -> None:
    workload = program([[1.0] * count for count in sizes])
    if ungrouped(workload) and size > 1:
        return
    sampler = GroupSampler(workload, size, seed=seed)
    for epoch in range(2):
        drawn = [rows_of(sampler, epoch * len(sizes) + place) for place in range(len(sizes))]
        groups = [set(workload.group[rows].tolist()) for rows in drawn]
        assert all(len(group) == 1 for group in groups)
        assert set().union(*groups) == set(range(len(sizes)))
        for rows, (group,) in zip(drawn, groups, strict=True):
            assert len(rows) == size
            assert len(set(rows.tolist())) == min(size, sizes[group])


@pytest.mark.parametrize("order", GroupOrder)
def test_a_workload_without_groups_is_cut_into_groups(order: GroupOrder) -> None:
    sampler = GroupSampler(program([[1.0]] * 12), 4, seed=1, order=order)
    drawn = np.concatenate([rows_of(sampler, group) for group in range(3)])
    assert sorted(drawn.tolist()) == list(range(12))
    if order is GroupOrder.TRACE:
        assert drawn.tolist() == list(range(12))


def test_the_order_of_a_trace_is_kept() -> None:
    workload = program([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    sampler = GroupSampler(workload, 2, seed=5, order=GroupOrder.TRACE)
    assert [rows_of(sampler, group).tolist() for group in range(4)] == [[0, 1], [2, 3], [4, 5], [0, 1]]


def test_asking_again_or_out_of_order_gives_the_same() -> None:
    workload = program([[1.0, 2.0]] * 5)
    sampler = GroupSampler(workload, 2, seed=5)
    first = [rows_of(sampler, group).tolist() for group in range(15)]
    assert [rows_of(GroupSampler(workload, 2, seed=5), group).tolist() for group in reversed(range(15))] == first[::-1]
