"""The controller against a plain cluster: closed forms of bounded staleness, and what must hold after every event."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_cluster import LoopCluster, cells

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellKind, CellRole, CellState
from gyre.controller import Controller, ControllerSettings
from gyre.errors import InputError
from gyre.groups import IllegalMoveError
from gyre.journal import from_line, to_line
from gyre.policies import POLICIES, find_policy
from gyre.replay import replay
from gyre.step import Step


def make(policy: str, *, steps: int = 12, groups: int = 4, size: int = 2, **keys: Any) -> Controller:
    kind = find_policy(policy)
    return Controller(
        ControllerSettings(steps=steps, groups_per_step=groups, group_size=size, micro_step_tokens=100),
        kind(kind.Settings(**keys)),
    )


def staleness(journal: Sequence[Any]) -> list[int]:
    """d = version being trained - version at dispatch, of every group offered, from the journal alone."""
    return [entry.step - entry.version for entry in journal if isinstance(entry, cmd.OfferMicroSteps)]


@pytest.mark.parametrize(("eta", "period_s"), [(0, 14.0), (1, 7.0), (2, 14 / 3), (3, 4.0), (5, 4.0)])
def test_bounded_staleness_period_is_the_closed_form(eta: int, period_s: float) -> None:
    """Bounded staleness: C 64, B 16, L 10, T 4: period max(T, B*L/C, (L + T)/(eta + 1)), staleness exactly eta."""
    controller = make("async", steps=120, groups=16, size=1, phi=eta, mu=1)
    controller.settings = ControllerSettings(steps=120, groups_per_step=16, group_size=1, micro_step_tokens=10**9)
    cluster = LoopCluster(controller, cells(2, 64), lambda _: 10.0, train_s_per_token=4.0 / 1600)
    journal = cluster.run()
    updates = [entry.time_s for entry in journal if isinstance(entry, ev.UpdateApplied)]
    assert (updates[-1] - updates[59]) / 60 == pytest.approx(period_s, rel=1e-9)
    assert set(staleness(journal)[-16:]) == {eta}


@pytest.mark.parametrize("eta", [0, 1, 2, 3, 5])
def test_bounded_staleness_when_serving_binds(eta: int) -> None:
    """The same with C 16: 14 at eta 0, else 10."""
    controller = make("async", steps=120, groups=16, size=1, phi=eta, mu=1)
    cluster = LoopCluster(controller, cells(2, 16), lambda _: 10.0, train_s_per_token=4.0 / 1600)
    updates = [entry.time_s for entry in cluster.run() if isinstance(entry, ev.UpdateApplied)]
    assert (updates[-1] - updates[59]) / 60 == pytest.approx(14.0 if eta == 0 else 10.0, rel=1e-9)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize(("phi", "mu"), [(0, 1), (1, 1), (0.5, 2), (1, 3), (2.25, 4)])
def test_mean_staleness_of_boundary_dispatch(policy: str, phi: float, mu: int) -> None:
    """Boundary dispatch: phi + (mu - 1)/2 whatever the lengths, over whole bursts once the queue is filled."""
    rng = random.Random(7)
    lengths = [rng.lognormvariate(0, 1) for _ in range(100_000)]
    controller = make(policy, steps=600 * mu, groups=4, size=2, phi=phi, mu=mu)
    journal = LoopCluster(controller, cells(3, 16), lambda e: lengths[e], switch_s=0.1, publish_s=0.1).run()
    values = staleness(journal)
    mean = sum(values) / len(values)
    # Groups dispatched into the first, unfilled queue wait less: at most Q_b groups of at most Q_b/B versions.
    assert mean == pytest.approx(phi + (mu - 1) / 2, abs=(phi + mu) ** 2 * 4 / len(values) + 1e-9)


def check_invariants(controller: Controller, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
    pool = controller.pool
    assert 0 <= pool.running <= pool.water_level
    assert pool.pending_groups + pool.ready_groups + len(controller.step.groups) == pool.outstanding_groups
    dispatched = [c for c in commands if isinstance(c, cmd.DispatchGroup)]
    started = isinstance(event, (ev.RunStarted, ev.WeightsPublished))
    assert not dispatched or started or pool.outstanding_groups == len(dispatched)  # a burst without any update
    assert all(c.version == controller.published_version for c in dispatched)


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    seed=st.integers(0, 10**6),
    phi=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    mu=st.integers(1, 3),
    streaming=st.booleans(),
    count=st.integers(2, 5),
    standalone=st.integers(0, 2),
    loss=st.sampled_from([0.0, 0.3, 0.7]),
)
def test_any_run_trains_every_group_at_most_once_and_replays_to_the_byte(
    policy: str, seed: int, phi: float, mu: int, streaming: bool, count: int, standalone: int, loss: float
) -> None:
    rng = random.Random(seed)
    lengths = [rng.lognormvariate(0, 1.5) for _ in range(5_000)]
    lost = [rng.random() < loss for _ in range(5_000)]
    keys = {"phi": phi, "mu": mu, "streaming": streaming}
    cluster = LoopCluster(
        make(policy, **keys),
        cells(count, 3, standalone),
        lambda e: lengths[e % 5_000],
        outcome=lambda e: "overall_timeout" if lost[e % 5_000] else "completed",
        valid=lambda e, attempt: (e + attempt) % 7 != 0,
        switch_s=0.3,
        publish_s=0.2,
        check=check_invariants,
    )
    journal = cluster.run()
    offered = [entry.group for entry in journal if isinstance(entry, cmd.OfferMicroSteps)]
    assert len(offered) == len(set(offered))
    done = [(entry.step, entry.micro_step) for entry in journal if isinstance(entry, ev.MicroStepDone)]
    assert len(done) == len(set(done))
    assert [entry.version for entry in journal if isinstance(entry, ev.UpdateApplied)] == list(range(1, 13))
    again = make(policy, **keys)
    assert replay([from_line(to_line(entry), 2) for entry in journal], again) == []
    assert (again.version, again.pool.water_level) == (cluster.controller.version, cluster.controller.pool.water_level)


def test_elastic_moves_keep_the_published_rules() -> None:
    """QwenGyre 1-4: core first, one after another, w <= C_R - C_e at every move, all back at the boundary."""
    rng = random.Random(3)
    lengths = [rng.lognormvariate(0, 1.2) for _ in range(20_000)]
    moves: list[tuple[int, CellRole]] = []

    def check(controller: Controller, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        to_training = [c for c in commands if isinstance(c, cmd.SwitchRole) and c.role is CellRole.TRAINING]
        assert len(to_training) <= 1
        for move in to_training:
            # C_R was already lowered by the capacity of the cell that leaves.
            assert controller.pool.water_level <= controller.fleet.serving_capacity
            ahead = [cell for cell in controller.fleet.cells if cell.index < move.cell]
            assert all(cell.training for cell in ahead)
            assert controller.fleet.cells[move.cell].spec.kind is not CellKind.STANDALONE
        if isinstance(event, ev.WeightsPublished):
            assert all(cell.role is CellRole.SERVING or cell.index == 0 for cell in controller.fleet.cells)
        moves.extend((c.cell, c.role) for c in commands if isinstance(c, cmd.SwitchRole))

    LoopCluster(
        make("elastic", steps=100, groups=8, size=4, phi=0.5, mu=2, join_backlog=0),
        cells(4, 10, 1),
        lambda e: lengths[e],
        switch_s=0.05,
        train_s_per_token=0.01,
        check=check,
    ).run()
    assert {cell for cell, role in moves if role is CellRole.TRAINING} == {0, 1, 2, 3}


def test_scores_are_tried_again_within_the_budget_then_the_execution_is_dropped() -> None:
    controller = make("colocate", steps=1, groups=1, size=3, phi=0, mu=1)
    journal = LoopCluster(controller, cells(1, 3), lambda _: 1.0, valid=lambda e, a: e != 1 and (e, a) != (2, 0)).run()
    attempts = [(c.execution, c.attempt) for c in journal if isinstance(c, cmd.ScoreExecution)]
    assert sorted(attempts) == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
    offer = next(c for c in journal if isinstance(c, cmd.OfferMicroSteps))
    assert sum(offer.tokens) == 200  # two members of three, 100 tokens each


def test_a_run_in_which_every_group_is_dropped_ends_with_one_clear_line() -> None:
    cluster = LoopCluster(make("elastic"), cells(2, 8), lambda _: 1.0, outcome=lambda _: "overall_timeout")
    with pytest.raises(InputError, match="dropped"):
        cluster.run()


class Wild(POLICIES["elastic"]):  # type: ignore[misc,valid-type]
    """A user's policy with a fault, given by its keyword."""

    name = "wild"
    fault = ""

    def moves(self, view: Any) -> Any:
        wrong = {
            "unknown cell": [(99, CellRole.TRAINING)],
            "role it has": [(0, CellRole.SERVING)],
            "nothing": None,
            "no pairs": [3],
            "no role": [(0, "resting")],
        }
        if self.fault == "raises":
            raise KeyError("x")
        if self.fault == "exits":
            raise SystemExit(0)
        if self.fault == "flaps":
            there = CellRole.TRAINING if view.core.role is CellRole.SERVING else CellRole.SERVING
            return [(0, there)] if view.core.serving or view.core.training else []
        return wrong[self.fault] if self.fault in wrong else super().moves(view)

    def dispatch(self, view: Any) -> Any:
        return {"no end": 10**9, "no number": float("nan")}.get(self.fault, super().dispatch(view))

    def take(self, view: Any) -> int:
        return view.ready_groups + 1 if self.fault == "too many" else super().take(view)


FAULTS = [
    "unknown cell",
    "role it has",
    "nothing",
    "no pairs",
    "no role",
    "raises",
    "exits",
    "flaps",
    "no end",
    "no number",
    "too many",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_policy_that_asks_for_what_cannot_be_is_named(fault: str) -> None:
    policy = Wild(POLICIES["elastic"].Settings())
    policy.fault = fault
    controller = Controller(ControllerSettings(steps=2, groups_per_step=2, group_size=2), policy)
    with pytest.raises(InputError, match=r"policy wild: (moves|take|dispatch|no update)"):
        LoopCluster(controller, cells(2, 4), lambda _: 1.0).run()


def test_user_policies_load_by_module_and_class() -> None:
    assert find_policy("gyre.policies.elastic:Elastic") is POLICIES["elastic"]
    with pytest.raises(InputError, match="choose one of"):
        find_policy("no-such")
    with pytest.raises(InputError, match="no subclass"):
        find_policy("gyre.errors:InputError")


def publishing() -> Controller:
    """Return a controller that waits for its first publishing."""
    controller = make("colocate", steps=3, phi=0, mu=1)
    cluster = LoopCluster(controller, cells(2, 16), lambda _: 1.0, publish_s=1.0)

    def stop(_: Controller, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        cluster.stopped = any(isinstance(command, cmd.PublishWeights) for command in commands)

    cluster.check = stop
    cluster.run()
    return controller


def test_what_is_told_twice_of_cells_and_weights_counts_once() -> None:
    """Both who watches a cell and who moves it may tell that it failed; a core that returns has weights sent again."""
    controller = publishing()
    failed = ev.CellFailed(controller.time_s, 1)
    controller.handle(failed)
    controller.handle(failed)
    dispatched = controller.handle(ev.WeightsPublished(controller.time_s, 1))
    assert any(isinstance(command, cmd.DispatchGroup) for command in dispatched)
    again = controller.handle(ev.WeightsPublished(controller.time_s, 1))
    assert not any(isinstance(command, cmd.DispatchGroup) for command in again)


def test_seconds_of_moves_have_no_consequence() -> None:
    """After every event of a run the clusters may tell how long a step of a move took: the same commands, in full."""
    cluster = LoopCluster(make("elastic"), cells(3, 4), lambda _: 10.0, train_s_per_token=0.01)
    journal = [entry for entry in cluster.run() if isinstance(entry, (cmd.Command, ev.Event))]
    other, commands = make("elastic"), []
    for entry in journal:
        if isinstance(entry, ev.Event):
            commands += other.handle(entry)
            assert other.handle(ev.TransferDone(entry.time_s, 1, "drain", 2.5)) == []
    assert commands == [entry for entry in journal if isinstance(entry, cmd.Command)]


def test_weights_that_were_never_made_cannot_be_published() -> None:
    controller = publishing()
    with pytest.raises(IllegalMoveError, match="version 2 was published"):
        controller.handle(ev.WeightsPublished(controller.time_s, 2))


def test_a_micro_step_that_was_never_offered_is_refused_rather_than_waited_for() -> None:
    """Counted, it would make more that are done than there are, and the step would never close."""
    step = Step(offered=2)
    for micro_step in (-1, 2):
        with pytest.raises(IllegalMoveError, match="none of the 2"):
            step.claim(micro_step, 0, 0.0)
        with pytest.raises(IllegalMoveError, match="none of the 2"):
            step.finish(micro_step, 0, 0.0)


@pytest.mark.parametrize("cell", [-1, 2, 99])
@pytest.mark.parametrize(
    "event",
    [
        lambda cell: ev.CellChanged(1.0, cell, CellState.TO_TRAINING),
        lambda cell: ev.CellFailed(1.0, cell),
        lambda cell: ev.CellJoined(1.0, cell),
    ],
    ids=["changed", "failed", "joined"],
)
def test_what_is_told_of_a_cell_that_is_not_there_is_refused(event: Callable[[int], ev.Event], cell: int) -> None:
    controller = Controller(ControllerSettings(1, 1, 1), POLICIES["colocate"](POLICIES["colocate"].Settings()))
    controller.handle(ev.RunStarted(0.0, cells(2, 4)))
    with pytest.raises(IllegalMoveError, match=f"cell {cell} is none of the 2 cells"):
        controller.handle(event(cell))


NUMBERS = st.integers(-2, 8) | st.sampled_from([-(10**12), 10**12])
ANY_EVENT = st.one_of(
    st.builds(ev.ExecutionStarted, NUMBERS, NUMBERS, NUMBERS),
    st.builds(ev.ExecutionFinished, NUMBERS, NUMBERS, st.sampled_from(["completed", "cancelled", "?"]), st.just(())),
    st.builds(
        ev.ExecutionScored, NUMBERS, NUMBERS, st.booleans(), st.none() | st.floats(0, 1), st.just((10,)), NUMBERS
    ),
    st.builds(ev.ExecutionLost, NUMBERS, NUMBERS, st.just("gone")),
    st.builds(ev.CellChanged, NUMBERS, NUMBERS, st.sampled_from(CellState)),
    st.builds(ev.CellFailed, NUMBERS, NUMBERS) | st.builds(ev.CellJoined, NUMBERS, NUMBERS),
    st.builds(ev.MicroStepClaimed, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(ev.MicroStepDone, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(ev.UpdateApplied, NUMBERS, NUMBERS) | st.builds(ev.WeightsPublished, NUMBERS, NUMBERS),
    st.builds(ev.CheckpointSaved, NUMBERS, NUMBERS) | st.builds(ev.RunResumed, NUMBERS, NUMBERS, st.just(cells(2, 4))),
    st.builds(ev.Timer, NUMBERS, st.sampled_from(["policy", "score/1/0", "score/x", "score/-1/0", ""])),
)


@settings(max_examples=150, deadline=None)
@given(policy=st.sampled_from(sorted(POLICIES)), events=st.lists(ANY_EVENT, max_size=40))
def test_impossible_events_are_refused_by_the_stated_errors_and_by_no_others(policy: str, events: list[Any]) -> None:
    """Out of order, twice, of what never was: a driver can tell a contradiction from a fault of the controller."""
    controller = make(policy, groups=2)
    controller.handle(ev.RunStarted(0.0, cells(2, 4)))
    for event in events:
        with contextlib.suppress(IllegalMoveError, InputError, ValueError):
            controller.handle(event)
        assert 0 <= controller.pool.running <= controller.pool.water_level
