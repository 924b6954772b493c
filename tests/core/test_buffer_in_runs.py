"""The buffer's rules in whole runs of every policy: no step breaks them, no run stands still."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_cluster import LoopCluster, cells

from gyre import commands as cmd
from gyre import events as ev
from gyre.buffer.settings import BufferSettings, Evict, OnStale, Order
from gyre.controller import Controller
from gyre.controller_settings import ControllerSettings
from gyre.errors import InputError
from gyre.journal import Entry
from gyre.policies import POLICIES, find_policy
from gyre.pool import SAMPLE_TOKEN_BYTES
from gyre.task_order import TaskOrder
from gyre.trajectory.samples import TOKEN_FIELDS

RUN = ControllerSettings(steps=15, groups_per_step=4, group_size=2, micro_step_tokens=1000)


def make(policy: str, run: ControllerSettings, tasks: int | None = None, **keys: Any) -> Controller:
    kind = find_policy(policy)
    return Controller(run, kind(kind.Settings(**keys)), TaskOrder(tasks, seed=1) if tasks else None)


def journal_of(controller: Controller, seed: int, capacity: int = 3, spread: float = 1.5) -> list[Entry]:
    rng = Random(seed)
    lengths = [rng.lognormvariate(0, spread) for _ in range(2_000)]
    times = {"switch_s": 0.1, "publish_s": 0.1, "train_s_per_token": 0.002}
    return LoopCluster(controller, cells(3, capacity), lambda e: lengths[e % 2_000], **times).run()


def steps_of(journal: Sequence[Entry]) -> dict[int, list[cmd.OfferMicroSteps]]:
    steps: dict[int, list[cmd.OfferMicroSteps]] = defaultdict(list)
    for entry in journal:
        if isinstance(entry, cmd.OfferMicroSteps):
            steps[entry.step].append(entry)
    return steps


any_policy = st.sampled_from(sorted(POLICIES))


@settings(max_examples=40, deadline=None)
@given(
    policy=any_policy, seed=st.integers(0, 10**6), streaming=st.booleans(), mu=st.integers(1, 3), cap=st.integers(1, 3)
)
def test_no_step_has_more_groups_of_a_task_than_are_allowed(
    policy: str, seed: int, streaming: bool, mu: int, cap: int
) -> None:
    run = replace(RUN, buffer=BufferSettings(groups_per_task=cap))
    journal = journal_of(make(policy, run, tasks=5, mu=mu, phi=1, streaming=streaming), seed)
    tasks = {entry.group: entry.task for entry in journal if isinstance(entry, cmd.DispatchGroup)}
    for offers in steps_of(journal).values():
        assert max(Counter(tasks[offer.group] for offer in offers).values()) <= cap
    assert sum(isinstance(entry, ev.UpdateApplied) for entry in journal) == RUN.steps


@settings(max_examples=40, deadline=None)
@given(
    policy=any_policy,
    seed=st.integers(0, 10**6),
    streaming=st.booleans(),
    mu=st.integers(1, 2),
    on_stale=st.sampled_from(OnStale),
    order=st.sampled_from(Order),
)
def test_nothing_is_trained_staler_than_allowed(
    policy: str, seed: int, streaming: bool, mu: int, on_stale: OnStale, order: Order
) -> None:
    """With on_stale wait nothing is dropped either, whatever the lengths."""
    run = replace(RUN, buffer=BufferSettings(max_staleness=2, on_stale=on_stale, order=order))
    journal = journal_of(make(policy, run, mu=mu, phi=1, streaming=streaming), seed)
    staleness = [offer.step - offer.version for offers in steps_of(journal).values() for offer in offers]
    assert max(staleness) <= 2
    dropped = sum(isinstance(entry, cmd.DropGroup) for entry in journal)
    assert on_stale is OnStale.DROP or not dropped


@settings(max_examples=30, deadline=None)
@given(policy=any_policy, seed=st.integers(0, 10**6), share=st.sampled_from([0.25, 0.5]), uses=st.integers(2, 4))
def test_a_set_share_of_a_step_was_trained_before(policy: str, seed: int, share: float, uses: int) -> None:
    run = replace(RUN, buffer=BufferSettings(older_share=share, max_uses=uses, capacity_groups=1_000))
    journal = journal_of(make(policy, run, phi=1, mu=2), seed)
    seen: Counter[int] = Counter()
    for step, offers in steps_of(journal).items():
        groups = [offer.group for offer in offers]
        old = sum(seen[group] > 0 for group in groups)
        assert old <= share * RUN.groups_per_step
        assert len(groups) == len(set(groups)) == RUN.groups_per_step
        assert step == 0 or uses == 2 or old == share * RUN.groups_per_step
        seen.update(groups)
    assert max(seen.values()) <= uses


def test_a_full_buffer_drops_the_group_that_its_rule_names() -> None:
    run = replace(RUN, groups_per_step=2, buffer=BufferSettings(capacity_groups=2, evict=Evict.OLDEST))
    controller = make("colocate", run, phi=3, mu=1)
    controller.handle(ev.RunStarted(0.0, cells(1, 100)))
    commands = []
    for group in range(3):
        for execution in (2 * group, 2 * group + 1):
            controller.handle(ev.ExecutionFinished(1.0, execution, "completed", ((0, 7),)))
            commands += controller.handle(ev.ExecutionScored(1.0, execution, True, 1.0, (10,)))
    assert [(c.group, c.reason) for c in commands if isinstance(c, cmd.DropGroup)] == [(0, "evicted")]
    assert controller.pool.ready_groups == 2
    assert controller.cursor.groups == 1


def test_what_a_token_takes_is_what_samples_hold_of_it() -> None:
    assert sum(np.dtype(kind).itemsize for kind in TOKEN_FIELDS.values()) == SAMPLE_TOKEN_BYTES


@pytest.mark.parametrize(
    ("buffer", "keys", "says"),
    [
        (
            BufferSettings(max_staleness=0),
            {"mu": 2, "phi": 0},
            "burst of mu 2 trains groups that are 1 ",
        ),
        (BufferSettings(max_staleness=1, on_stale=OnStale.WAIT), {"mu": 2, "phi": 0.5}, "give at least 2"),
        (BufferSettings(groups_per_task=1), {}, "1 of each of 3 tasks cannot fill a step of 4"),
        (BufferSettings(capacity_groups=3), {}, "buffer.capacity_groups: 3, but a step takes 4 groups"),
        (
            BufferSettings(older_share=0.25, max_uses=2),
            {},
            "older_share: 0.25 with max_uses 2 leaves more .*; give max_",
        ),
    ],
)
def test_a_buffer_that_cannot_feed_the_steps_is_refused(
    buffer: BufferSettings, keys: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        make("elastic", replace(RUN, buffer=buffer), tasks=3, **keys)


def test_a_run_whose_groups_all_leave_the_buffer_says_why() -> None:
    controller = make("colocate", replace(RUN, buffer=BufferSettings(capacity_bytes=10)))
    with pytest.raises(InputError, match=r"100 dispatches in a row were dropped: larger than the buffer \(\d+\); look"):
        journal_of(controller, seed=0)
