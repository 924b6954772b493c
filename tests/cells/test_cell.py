"""A cell's moves: whatever is asked, breaks or is cancelled, it keeps to the table and ends settled."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.cluster import CELL_MOVES, CellKind, CellRole, CellSpec, CellState
from gyre.groups import IllegalMoveError

pytest.importorskip("aiohttp", reason="a cell's engine is steered by aiohttp")

from cell_sides import Sides, TrainerOf

from gyre.backends.cells.cell import Cell, CellBrokenError, Transfer

SETTLED = {CellState.SERVING, CellState.TRAINING, CellState.FAILED}
STEPS = ("drain", "release", "load", "offload", "restore", "admit", "reset", "revive")


def cell_of(sides: Sides, transfers: list[Transfer] | None = None, step_s: float = 900.0) -> Cell:
    spec = CellSpec(1, CellKind.SATELLITE, 4, 1)
    cell = Cell(spec, sides, TrainerOf(sides), step_s=step_s)
    if transfers is not None:
        cell.record = transfers.append
    return cell


async def there_and_back(cell: Cell) -> None:
    for role in (CellRole.TRAINING, CellRole.SERVING):
        await cell.switch(role, lambda state: None)


def test_both_moves_go_through_their_states_and_every_step_is_timed() -> None:
    async def run() -> None:
        sides, transfers, states = Sides(), [], []
        cell = cell_of(sides, transfers)
        await cell.switch(CellRole.TRAINING, states.append)
        assert (sides.serves, sides.holds_memory) == (False, True)
        await cell.switch(CellRole.TRAINING, states.append)  # it has the role
        await cell.switch(CellRole.SERVING, states.append)
        assert (sides.serves, sides.holds_memory) == (True, False)
        assert states == ["draining", "to_training", "training", "to_serving", "serving"]
        assert [transfer.step for transfer in transfers] == list(STEPS[:6])
        assert all(transfer.cell == 1 and transfer.seconds >= 0 for transfer in transfers)

    asyncio.run(run())


@pytest.mark.parametrize("step", STEPS[:6])
def test_a_step_that_fails_or_takes_too_long_fails_the_cell_and_it_comes_back(step: str) -> None:
    async def run(fault: str) -> None:
        sides = Sides()
        cell = cell_of(sides, step_s=0.05)
        getattr(sides, fault).add(step)
        with pytest.raises(CellBrokenError, match=step):
            await there_and_back(cell)
        assert cell.state is CellState.FAILED
        getattr(sides, fault).clear()
        await cell.rejoin()
        assert (cell.state, sides.serves, sides.holds_memory) == (CellState.SERVING, True, False)

    for fault in ("fails", "hangs"):
        asyncio.run(run(fault))


def test_a_cell_without_a_trainer_only_serves() -> None:
    cell = Cell(CellSpec(2, CellKind.STANDALONE, 4, 1), Sides(), None)
    with pytest.raises(IllegalMoveError, match="cannot train"):
        asyncio.run(cell.switch(CellRole.TRAINING, lambda state: None))


OPERATIONS = st.one_of(
    st.tuples(st.just("switch"), st.sampled_from(CellRole), st.sets(st.sampled_from(STEPS), max_size=2)),
    st.tuples(st.just("cancel"), st.sampled_from(CellRole), st.integers(0, 6)),
    st.tuples(st.just("fail"), st.sampled_from(CellRole), st.integers(0, 6)),
    st.tuples(st.just("rejoin"), st.just(None), st.sets(st.sampled_from(STEPS[6:]), max_size=1)),
)


@given(st.lists(OPERATIONS, max_size=12))
def test_whatever_happens_the_cell_keeps_to_the_table(operations: list[tuple[str, CellRole, object]]) -> None:
    async def run() -> None:
        sides = Sides()
        cell = cell_of(sides)
        seen = [cell.state]
        for what, role, extra in operations:
            sides.fails = extra if isinstance(extra, set) else set()
            work = cell.rejoin() if what == "rejoin" else cell.switch(role, seen.append)
            task = asyncio.ensure_future(work)
            if isinstance(extra, int):
                for _ in range(extra):  # somewhere in the move, or after it
                    await asyncio.sleep(0)
                if what == "cancel":
                    task.cancel()
                else:
                    cell.fail("its engine has died")
            await asyncio.gather(task, return_exceptions=True)
            assert cell.state in SETTLED
            if seen[-1] is not cell.state:  # a failure, or what came after one, is not told here
                seen.append(cell.state)
            if cell.state is CellState.SERVING:
                assert sides.serves
                assert not sides.holds_memory
            if cell.state is CellState.TRAINING:
                assert sides.holds_memory
                assert not sides.serves
        for before, after in itertools.pairwise(seen):
            assert after in CELL_MOVES[before]

    asyncio.run(run())
