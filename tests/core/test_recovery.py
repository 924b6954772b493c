"""A run that is cut off at any entry of its journal goes on: nothing is lost, nothing is trained twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from loop_cluster import LoopCluster, cells
from run_ledger import Ledger

from gyre import commands as cmd
from gyre import events as ev
from gyre.buffer.settings import BufferSettings, Evict, OnStale, Order
from gyre.controller import Controller
from gyre.controller_settings import ControllerSettings
from gyre.errors import InputError
from gyre.group_settings import GroupSettings, OnLoss
from gyre.journal import Entry, from_line, to_line
from gyre.policies import POLICIES, find_policy
from gyre.replay import replay
from gyre.step import StepPhase
from gyre.task_order import TaskOrder

STEPS = 7
CUTS = 3

GROUPS = [
    GroupSettings(),
    GroupSettings(redundancy=1),
    GroupSettings(on_loss=OnLoss.TOP_UP, max_replacements=2),
    GroupSettings(redundancy=1, on_loss=OnLoss.WAIT),
    GroupSettings(on_loss=OnLoss.TOP_UP, cancel_equal_after=2),
]

BUFFERS = [
    BufferSettings(),
    BufferSettings(groups_per_task=1, order=Order.NEWEST),
    BufferSettings(max_staleness=2, capacity_groups=4),
    BufferSettings(max_staleness=3, on_stale=OnStale.WAIT),
    BufferSettings(older_share=0.4, max_uses=3, capacity_groups=6, evict=Evict.MOST_USED),
]


@dataclass(frozen=True)
class Case:
    """One run: its controller, and a cluster whose executions end, are lost and are scored as the seed says."""

    policy: str = "elastic"
    streaming: bool = True
    phi: float = 0.5
    mu: int = 2
    groups: GroupSettings = field(default_factory=GroupSettings)
    buffer: BufferSettings = field(default_factory=BufferSettings)
    keeps: bool = False
    checkpoint_every: int = 0
    seed: int = 0

    def controller(self) -> Controller:
        kind = find_policy(self.policy)
        return Controller(
            ControllerSettings(
                steps=STEPS,
                groups_per_step=3,
                group_size=3,
                micro_step_tokens=100,
                score_timeout_s=2.0,
                groups=self.groups,
                buffer=self.buffer,
                seed=self.seed,
                keeps_until_checkpoint=self.keeps,
            ),
            kind(kind.Settings(phi=self.phi, mu=self.mu, streaming=self.streaming)),
            TaskOrder(5, seed=self.seed),
        )

    def cluster(self, controller: Controller, **more: Any) -> LoopCluster:
        def chance(kind: int, *keys: int) -> float:
            return Random(f"{self.seed} {kind} {keys}").random()

        return LoopCluster(
            controller,
            cells(3, 4, 1),
            lambda execution: 1 + 9 * chance(0, execution),
            outcome=lambda execution: "lost" if chance(1, execution) < 0.15 else "completed",
            valid=lambda execution, attempt: chance(2, execution, attempt) > 0.2,
            hangs=lambda execution, attempt: chance(3, execution, attempt) < 0.1,
            score=lambda execution: float(chance(4, execution) < 0.5),
            scoring_s=0.5,
            train_s_per_token=0.002,
            update_s=0.4,
            publish_s=0.3,
            switch_s=0.2,
            checkpoint_every=self.checkpoint_every,
            **more,
        )


def recorded(entries: Sequence[Entry]) -> list[Entry]:
    """The journal as a restarted process reads it."""
    return [from_line(to_line(entry), 2) for entry in entries]  # type: ignore[misc]


def versions(controller: Controller) -> list[int]:
    """What a trainer may hold when the controller's journal ends here."""
    oldest = controller.kept.durable if controller.settings.keeps_until_checkpoint else controller.version
    newest = controller.version + (controller.step.phase is StepPhase.UPDATING)
    return list(range(oldest, newest + 1))


@settings(max_examples=60, deadline=None)
@example(Case(policy="elastic", phi=0.0, mu=1, keeps=True, checkpoint_every=2), [(0.5625, 0.0)])  # all ready, none runs
@given(
    case=st.builds(
        Case,
        policy=st.sampled_from(sorted(POLICIES)),
        streaming=st.booleans(),
        phi=st.sampled_from([0.0, 0.5, 1.0]),
        mu=st.integers(1, 3),
        groups=st.sampled_from(GROUPS),
        buffer=st.sampled_from(BUFFERS),
        keeps=st.booleans(),
        checkpoint_every=st.integers(1, 4),
        seed=st.integers(0, 10**6),
    ),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=CUTS),
)
def test_a_run_cut_off_at_any_entry_goes_on_to_its_end(case: Case, cuts: list[tuple[float, float]]) -> None:
    journal = case.cluster(case.controller()).run()
    for place, choice in cuts:
        journal = cut_and_resumed(case, journal[: 1 + int(place * (len(journal) - 1))], choice)
    ledger = Ledger(case.keeps, case.buffer.max_uses)
    ledger.read(journal)
    controller = case.controller()
    assert replay(recorded(journal), controller) == []
    assert ledger.version == controller.version == STEPS
    assert set(ledger.trained) | ledger.dropped | set(controller.pool.groups) == set(ledger.dispatched)
    assert not ledger.dropped & set(ledger.trained)
    order = TaskOrder(5, seed=case.seed)
    assert list(ledger.dispatched.values()) == [order.task(group) for group in ledger.dispatched]


def cut_and_resumed(case: Case, journal: Sequence[Entry], choice: float) -> list[Entry]:
    """Restart from a journal that ends after any entry; `choice` says which version the trainer holds."""
    controller = case.controller()
    pending = replay(recorded(journal), controller)
    whole = [*journal, *pending]
    if controller.stopped:
        return whole
    possible = versions(controller)
    ledger = Ledger(case.keeps, case.buffer.max_uses)
    ledger.read(whole)

    def check(controller: Controller, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        ledger.read([event, *commands])
        cursor = controller.cursor
        settled = set(range(cursor.groups)) | set(cursor.beyond)
        assert settled == ledger.dropped | set(ledger.trained)
        assert 0 <= controller.pool.running <= controller.pool.water_level

    cluster = case.cluster(controller, journal=whole, check=check)
    return cluster.resume(possible[int(choice * (len(possible) - 1) + 0.5)])


def resumed_in(phase: StepPhase, version: int, **changes: Any) -> tuple[Controller, list[cmd.Command]]:
    """Resume a run that is cut off where training first enters `phase` after two updates."""
    case = replace(Case(), **changes)
    entries = case.cluster(case.controller()).run()
    controller = case.controller()
    for event in (entry for entry in entries if isinstance(entry, ev.Event)):
        controller.handle(event)
        if controller.version >= 2 and controller.step.phase is phase:
            break
    event = ev.RunResumed(controller.time_s, controller.version + version, cells(3, 4, 1))
    return controller, controller.handle(event)


def test_what_runs_starts_from_scratch_and_what_is_scored_is_scored_again() -> None:
    controller = Case().controller()
    controller.handle(ev.RunStarted(0.0, cells(3, 4, 1)))
    controller.handle(ev.ExecutionFinished(1.0, 1, "completed", ()))
    controller.handle(ev.ExecutionScored(2.0, 1, False, None, ()))
    controller.handle(ev.ExecutionFinished(3.0, 4, "completed", ()))
    commands = controller.handle(ev.RunResumed(9.0, 0, cells(3, 4, 1)))
    started = [c.execution for c in commands if isinstance(c, cmd.StartExecution)]
    running = [m.execution for g in controller.pool.groups.values() for m in g.members if m.state == "running"]
    assert started == sorted(running)
    assert len(started) == 16
    scored = [(c.execution, c.attempt) for c in commands if isinstance(c, cmd.ScoreExecution)]
    assert scored == [(1, 1), (4, 0)]
    assert [(c.name, c.at_s) for c in commands if isinstance(c, cmd.SetTimer)] == [
        ("score/1/1", 11.0),
        ("score/4/0", 11.0),
    ]
    assert not any(isinstance(c, cmd.DispatchGroup) for c in commands)


def test_an_open_step_begins_again_with_the_same_groups() -> None:
    controller, commands = resumed_in(StepPhase.OPEN, 0)
    opened = next(i for i, c in enumerate(commands) if isinstance(c, cmd.OpenStep))
    offers = [c for c in commands[opened:] if isinstance(c, cmd.OfferMicroSteps)]
    assert [c.group for c in offers] == controller.step.groups
    assert offers[0].first == 0


def test_an_update_under_way_is_taken_as_made_where_the_trainer_has_it() -> None:
    controller, commands = resumed_in(StepPhase.UPDATING, 1)
    assert controller.version == 3
    assert not any(isinstance(c, cmd.ApplyUpdate) for c in commands)
    again, commands = resumed_in(StepPhase.UPDATING, 0)
    assert again.version == 2
    assert any(isinstance(c, cmd.OpenStep) for c in commands)


def test_weights_that_were_being_published_are_published_again() -> None:
    controller, commands = resumed_in(StepPhase.PUBLISHING, 0)
    assert [c.version for c in commands if isinstance(c, cmd.PublishWeights)] == [controller.version]


def test_weights_that_no_journaled_update_made_are_refused() -> None:
    with pytest.raises(InputError, match="the trainer has version 3, the journal knows of none after 2"):
        resumed_in(StepPhase.OPEN, 1)
    with pytest.raises(InputError, match="none after 3"):
        resumed_in(StepPhase.UPDATING, 2)


def test_older_weights_are_refused_where_their_groups_are_gone() -> None:
    with pytest.raises(InputError, match="is not kept any more; give the trainer a checkpoint of version 2 to 2"):
        resumed_in(StepPhase.OPEN, -1)


def test_a_trainer_without_its_last_updates_trains_their_groups_again() -> None:
    controller, commands = resumed_in(StepPhase.OPEN, -2, keeps=True)
    assert controller.version == controller.published_version == 0
    assert [c.version for c in commands if isinstance(c, cmd.PublishWeights)] == [0]
    assert controller.cursor.groups == 0
    assert controller.pool.ready_groups >= 6


def test_groups_are_released_when_a_checkpoint_holds_what_they_taught() -> None:
    case = Case(keeps=True, checkpoint_every=3)
    released: list[int] = []
    for entry in case.cluster(case.controller()).run():
        if isinstance(entry, cmd.ReleaseGroup):
            released.append(entry.group)
        elif isinstance(entry, ev.UpdateApplied) and entry.version < 3:
            assert not released
    assert len(released) == 2 * 3 * 3


def test_a_run_that_never_began_cannot_go_on() -> None:
    with pytest.raises(InputError, match="no RunStarted"):
        Case().controller().handle(ev.RunResumed(0.0, 0, cells(1, 1)))


@pytest.mark.parametrize("seed", [44, 59])
def test_a_cell_that_was_late_for_its_burst_does_not_hold_up_a_resumed_run(seed: int) -> None:
    """Elastic sends such a cell back when it arrives; after a restart it never does, and nothing else may happen."""
    rng = Random(seed)
    phi, mu = rng.choice([1, 2, 3]), rng.choice([1, 2])
    lengths = [rng.lognormvariate(0, 1.5) for _ in range(500)]

    def controller() -> Controller:
        kind = find_policy("elastic")
        sizes = ControllerSettings(steps=6, groups_per_step=2, group_size=1, micro_step_tokens=10, min_group_members=1)
        return Controller(sizes, kind(kind.Settings(phi=phi, mu=mu, join_backlog=0)))

    def cluster(of: Controller, journal: list[Entry]) -> LoopCluster:
        times = {"switch_s": 5.0, "publish_s": 2.0 * (seed == 44), "update_s": 1.0 * (seed == 44)}
        return LoopCluster(of, cells(3, 20), lambda execution: lengths[execution % 500], journal=journal, **times)

    journal = cluster(controller(), []).run()
    for cut in range(1, len(journal)):
        again = controller()
        pending = replay(journal[:cut], again)
        if not again.stopped:
            cluster(again, [*journal[:cut], *pending]).resume(again.version)
        assert again.version == 6
