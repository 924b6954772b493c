"""What becomes of groups that lose members, have more than they need or cannot matter; and of evaluations that hang."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_cluster import LoopCluster, cells
from run_ledger import Ledger

from gyre import commands as cmd
from gyre import events as ev
from gyre.controller import Controller
from gyre.controller_settings import ControllerSettings
from gyre.group_settings import GroupSettings, OnLoss
from gyre.groups import GroupState
from gyre.journal import Entry
from gyre.policies import find_policy

C = TypeVar("C", bound=Entry)


def make(
    *,
    size: int = 3,
    groups: int = 1,
    steps: int = 1,
    phi: float = 0,
    mu: int = 1,
    policy: str = "colocate",
    **keys: Any,
) -> Controller:
    of_controller = {key: keys.pop(key) for key in ("score_timeout_s", "min_group_members") if key in keys}
    kind = find_policy(policy)
    settings = ControllerSettings(
        steps=steps, groups_per_step=groups, group_size=size, groups=GroupSettings(**keys), **of_controller
    )
    return Controller(settings, kind(kind.Settings(phi=phi, mu=mu)))


def begun(capacity: int = 100, **keys: Any) -> Controller:
    """A controller whose run has begun on one cell that can carry `capacity` executions."""
    controller = make(**keys)
    controller.handle(ev.RunStarted(0.0, cells(1, capacity)))
    return controller


def of(kind: type[C], entries: Sequence[Entry]) -> list[C]:
    return [entry for entry in entries if isinstance(entry, kind)]


def finish(controller: Controller, execution: int, score: float | None = 1.0, time_s: float = 1.0) -> list[cmd.Command]:
    """An execution ends and is scored; with score None it is lost."""
    if score is None:
        return controller.handle(ev.ExecutionLost(time_s, execution, "its container died"))
    commands = controller.handle(ev.ExecutionFinished(time_s, execution, "completed", ((0, 10),)))
    return [*commands, *controller.handle(ev.ExecutionScored(time_s, execution, True, score, (10,)))]


# Groups that lose members


def test_one_lost_execution_does_not_abort_the_step() -> None:
    """NovaSky-AI/SkyRL#1613: the other members are trained."""
    cluster = LoopCluster(make(), cells(1, 3), lambda _: 1.0, outcome=lambda e: "lost" if e == 1 else "completed")
    offers = of(cmd.OfferMicroSteps, cluster.run())
    assert [sum(offer.tokens) for offer in offers] == [200]


def test_a_replaced_execution_that_reports_late_does_not_reach_the_batch() -> None:
    """microsoft/agent-lightning#218: a time-out is requeued as another execution; what the first sends is ignored."""
    controller = begun(on_loss=OnLoss.TOP_UP)
    commands = controller.handle(ev.ExecutionFinished(1.0, 0, "overall_timeout", ()))
    assert of(cmd.AddExecutions, commands) == [cmd.AddExecutions(1.0, 0, (3,))]
    assert cmd.StartExecution(1.0, 3) in commands
    for execution in (1, 2):
        finish(controller, execution)
    assert controller.handle(ev.ExecutionFinished(2.0, 0, "completed", ((0, 99),))) == []
    assert controller.handle(ev.ExecutionScored(2.0, 0, True, 1.0, (99,))) == []
    finish(controller, 3)
    assert controller.pool.ready_groups == 1
    assert controller.pool.groups[0].sample_tokens == (10, 10, 10)


def test_a_replacement_goes_before_groups_that_were_dispatched_later() -> None:
    controller = begun(capacity=3, phi=3, on_loss=OnLoss.TOP_UP)
    commands = finish(controller, 0, score=None)
    assert of(cmd.StartExecution, commands) == [cmd.StartExecution(1.0, 3)]
    assert of(cmd.StartExecution, finish(controller, 3)) == [cmd.StartExecution(1.0, 6)]


def test_a_group_that_is_topped_up_goes_on_with_fewer_when_no_place_is_left() -> None:
    controller = begun(on_loss=OnLoss.TOP_UP, max_replacements=1)
    finish(controller, 0, score=None)
    assert of(cmd.AddExecutions, finish(controller, 3, score=None)) == []
    finish(controller, 1)
    finish(controller, 2)
    assert controller.pool.groups[0].state in (GroupState.READY, GroupState.TRAINING)
    assert controller.pool.groups[0].scored_members == 2


def test_a_group_that_waits_for_all_is_dropped_as_soon_as_that_is_impossible() -> None:
    controller = begun(on_loss=OnLoss.WAIT, max_replacements=1)
    finish(controller, 0, score=None)
    commands = finish(controller, 1, score=None)
    assert [c.execution for c in of(cmd.CancelExecution, commands)] == [2, 3]
    assert [c.group for c in of(cmd.DropGroup, commands)] == [0]
    assert controller.pool.running == 3  # of the group that takes its place, at once since nothing is outstanding


def test_members_whose_evaluation_fails_for_good_are_replaced_too() -> None:
    controller = begun(on_loss=OnLoss.TOP_UP)
    for execution in range(3):
        controller.handle(ev.ExecutionFinished(1.0, execution, "completed", ()))
    assert controller.pool.groups[0].state is GroupState.SCORING
    for attempt in range(3):
        commands = controller.handle(ev.ExecutionScored(2.0, 0, False, None, (), attempt))
    assert of(cmd.AddExecutions, commands) == [cmd.AddExecutions(2.0, 0, (3,))]
    assert controller.pool.groups[0].state is GroupState.RUNNING


def test_a_slot_is_not_held_by_the_slowest_sibling() -> None:
    """radixark/miles#1673: what a member leaves is free for other groups at once, though its siblings run."""
    controller = begun(capacity=3, phi=3)
    started = [of(cmd.StartExecution, finish(controller, execution)) for execution in (0, 1)]
    assert [[c.execution for c in commands] for commands in started] == [[3], [4]]
    assert controller.pool.groups[0].state is GroupState.RUNNING


def test_staleness_counts_from_the_dispatch_not_from_the_end() -> None:
    """radixark/miles#2296: neither a late start nor a replacement makes a group fresher than its dispatch."""
    lost = {4: "lost"}
    cluster = LoopCluster(
        make(groups=1, steps=4, phi=1, size=2, on_loss=OnLoss.TOP_UP),
        cells(1, 2),
        lambda e: 1.0,
        outcome=lambda e: lost.get(e, "completed"),
    )
    journal = cluster.run()
    dispatched = {c.group: c.version for c in of(cmd.DispatchGroup, journal)}
    offers = of(cmd.OfferMicroSteps, journal)
    assert [offer.version for offer in offers] == [dispatched[offer.group] for offer in offers]
    assert of(cmd.AddExecutions, journal)
    assert [offer.step - offer.version for offer in offers] == [0, 1, 1, 1]


# Redundancy


def test_the_first_n_scores_make_a_group_and_the_rest_is_cancelled() -> None:
    controller = begun(redundancy=2)
    for execution in (4, 2):
        assert not of(cmd.CancelExecution, finish(controller, execution))
    controller.handle(ev.ExecutionFinished(1.0, 1, "completed", ((0, 10),)))
    commands = finish(controller, 0)
    assert [(c.execution, c.reason) for c in of(cmd.CancelExecution, commands)] == [
        (1, "its group has enough members"),
        (3, "its group has enough members"),
    ]
    group = controller.pool.groups[0]
    assert (group.scored_members, group.sample_tokens) == (3, (10, 10, 10))
    assert controller.pool.water_level == controller.pool.running == 0


def test_spare_members_take_the_places_of_lost_ones_before_any_is_replaced() -> None:
    controller = begun(redundancy=1, on_loss=OnLoss.TOP_UP)
    assert not of(cmd.AddExecutions, finish(controller, 0, score=None))
    assert of(cmd.AddExecutions, finish(controller, 1, score=None)) == [cmd.AddExecutions(1.0, 0, (4,))]


# Groups that cannot matter


def test_a_cancelled_group_of_which_half_was_dispatched_does_not_strand() -> None:
    """huggingface/trl#5320: members that run are cancelled, those in the queue leave it, later ones take the places."""
    controller = begun(capacity=2, size=5, phi=1, cancel_equal_after=2)
    finish(controller, 0)  # 2 starts in its place
    commands = finish(controller, 1)
    assert [c.execution for c in of(cmd.CancelExecution, commands)] == [2, 3, 4]
    assert of(cmd.DropGroup, commands) == [cmd.DropGroup(1.0, 0, "zero variance")]
    assert [c.execution for c in of(cmd.StartExecution, commands)] == [3, 5, 6]
    assert (controller.pool.running, controller.pool.water_level) == (2, 5)
    for execution in (2, 3, 4):
        assert controller.handle(ev.ExecutionFinished(2.0, execution, "completed", ())) == []


def test_groups_with_different_scores_are_kept() -> None:
    controller = begun(cancel_equal_after=2)
    commands = [c for execution, score in enumerate((0.0, 1.0, 1.0)) for c in finish(controller, execution, score)]
    assert not of(cmd.DropGroup, commands)
    assert controller.pool.ready_groups + len(controller.step.groups) == 1


def test_a_group_whose_scores_are_all_equal_at_its_end_is_not_trained_either() -> None:
    controller = begun(cancel_equal_after=3, phi=1)
    commands = [c for e, s in ((0, None), (1, 0.5), (2, 0.5)) for c in finish(controller, e, s)]
    assert [(c.group, c.reason) for c in of(cmd.DropGroup, commands)] == [(0, "zero variance")]


def test_scores_that_are_not_known_are_not_equal() -> None:
    controller = begun(cancel_equal_after=2, size=2)
    for execution in (0, 1):
        controller.handle(ev.ExecutionFinished(1.0, execution, "completed", ((0, 10),)))
        controller.handle(ev.ExecutionScored(1.0, execution, True, None, (10,)))
    assert controller.pool.groups[0].state is not GroupState.DROPPED


# Evaluations


def test_an_evaluation_that_hangs_costs_its_time_out_and_no_more() -> None:
    """fw-ai/cookbook#692: a group does not stay at 7 of 8 for ever."""
    cluster = LoopCluster(
        make(size=8, score_timeout_s=5.0), cells(1, 8), lambda _: 1.0, hangs=lambda execution, _: execution == 3
    )
    journal = cluster.run()
    assert [c.attempt for c in of(cmd.ScoreExecution, journal) if c.execution == 3] == [0, 1, 2]
    assert [u.time_s for u in of(ev.UpdateApplied, journal)] == pytest.approx([1.0 + 3 * 5.0 + 7 * 100 * 0.001])


def test_a_valid_score_that_comes_late_counts_while_another_attempt_is_awaited() -> None:
    """ridgesai/ridges#458: the first evaluation comes after its time-out and before the second."""
    controller = begun(score_timeout_s=5.0, size=1, min_group_members=1)
    controller.handle(ev.ExecutionFinished(1.0, 0, "completed", ()))
    assert cmd.ScoreExecution(6.0, 0, 1) in controller.handle(ev.Timer(6.0, "score/0/0"))
    controller.handle(ev.ExecutionScored(7.0, 0, True, 0.0, (10,), 0))
    assert controller.pool.groups[0].members[0].score == 0.0
    assert not of(cmd.ScoreExecution, controller.handle(ev.ExecutionScored(8.0, 0, True, 1.0, (10,), 1)))
    assert controller.pool.groups[0].members[0].score == 0.0


def test_a_failure_that_comes_late_does_not_use_up_the_attempt_that_is_awaited() -> None:
    controller = begun(score_timeout_s=5.0, size=1)
    controller.handle(ev.ExecutionFinished(1.0, 0, "completed", ()))
    controller.handle(ev.Timer(6.0, "score/0/0"))
    assert controller.handle(ev.ExecutionScored(7.0, 0, False, None, (), 0)) == []
    assert controller.handle(ev.Timer(7.0, "score/0/0")) == []
    assert cmd.ScoreExecution(7.0, 0, 2) in controller.handle(ev.ExecutionScored(7.0, 0, False, None, (), 1))


# All of it together


@settings(max_examples=80, deadline=None)
@given(
    keys=st.fixed_dictionaries(
        {"redundancy": st.integers(0, 2), "on_loss": st.sampled_from(OnLoss)},
        optional={"cancel_equal_after": st.integers(2, 3)},
    ),
    policy=st.sampled_from(["async", "colocate", "elastic"]),
    seed=st.integers(0, 10**6),
    loss=st.sampled_from([0.0, 0.2, 0.5]),
)
def test_counts_stay_right_whatever_happens_to_members(
    keys: dict[str, Any], policy: str, seed: int, loss: float
) -> None:
    def drawn(kind: int, *numbers: int) -> float:
        return (hash((seed, kind, *numbers)) % 9973) / 9973

    ledger = Ledger(keeps=False)

    def check(controller: Controller, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        ledger.read([event, *commands])
        pool = controller.pool
        members = [member for group in pool.groups.values() for member in group.members]
        states = [member.state.value for member in members]
        assert (pool.queued, pool.running) == (states.count("queued"), states.count("running"))
        assert pool.pending_groups + pool.ready_groups + len(controller.step.groups) == pool.outstanding_groups
        for group in pool.groups.values():
            open_members = [m for m in group.members if m.state.value in ("queued", "running")]
            assert len(open_members) == group.open_members
            if group.state in (GroupState.READY, GroupState.TRAINING):
                assert group.scored_members == sum(m.state.value == "scored" for m in group.members) <= 3

    cluster = LoopCluster(
        make(size=3, groups=2, steps=6, phi=0.5, mu=2, policy=policy, score_timeout_s=3.0, **keys),
        cells(2, 5),
        lambda e: 1 + 9 * drawn(0, e),
        outcome=lambda e: "lost" if drawn(1, e) < loss else "completed",
        hangs=lambda e, attempt: drawn(2, e, attempt) < 0.2,
        score=lambda e: float(drawn(3, e) < 0.5),
        check=check,
    )
    cluster.run()
    assert ledger.version == 6
