"""Tasks of groups, and the place in the data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.data_cursor import DataCursor
from gyre.task_order import TaskOrder


@given(st.integers(1, 20), st.integers(0, 99), st.booleans())
def test_an_epoch_holds_every_task_once(tasks: int, seed: int, shuffled: bool) -> None:
    order = TaskOrder(tasks, seed=seed, shuffled=shuffled)
    for epoch in range(3):
        drawn = [order.task(epoch * tasks + place) for place in range(tasks)]
        assert sorted(drawn) == list(range(tasks))
        assert shuffled or drawn == list(range(tasks))


def test_any_group_can_be_asked_for_at_any_time() -> None:
    first = [TaskOrder(7, seed=3).task(group) for group in range(21)]
    again = TaskOrder(7, seed=3)
    assert [again.task(group) for group in reversed(range(21))] == first[::-1]
    assert first[:7] != first[7:14]


def test_no_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="give at least one"):
        TaskOrder(0)


@given(st.integers(0, 30).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, max(0, n - 1))))))
def test_a_cursor_holds_all_that_is_settled_and_nothing_else(case: tuple[int, set[int]]) -> None:
    dispatched, unsettled = case
    unsettled = {group for group in unsettled if group < dispatched}
    cursor = DataCursor.of(dispatched, unsettled)
    assert {group for group in range(dispatched + 3) if group in cursor} == set(range(dispatched)) - unsettled
    assert cursor.groups not in cursor
