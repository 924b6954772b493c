"""The buffer of ready groups: against plain lists, and what it promises in words."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
from buffer_reference import ReferenceBuffer
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from gyre.buffer.buffer import SampleBuffer
from gyre.buffer.entry import Entry
from gyre.buffer.lengths import class_bounds, length_class
from gyre.buffer.removal import Removal
from gyre.buffer.settings import BufferSettings, Evict, OnStale, Order
from gyre.errors import InputError


def entry(group: int, version: int = 0, *, task: int = 0, tokens: int = 10, size: int = 1) -> Entry:
    return Entry(group, task, version, ready_s=float(group), tokens=tokens, longest_tokens=tokens, size=size)


def train(buffer: SampleBuffer, version: int) -> tuple[list[int], list[Removal]]:
    """Take all that the step may, and apply its update."""
    taken = [buffer.take(version).group for _ in range(buffer.available(version))]
    return taken, buffer.consumed(version + 1)


@st.composite
def buffer_settings(draw: st.DrawFn, groups_per_step: int) -> BufferSettings:
    most = st.none() | st.integers(0, 3)
    max_staleness = draw(most)
    share = draw(st.sampled_from([0.0, 0.0, 0.3, 0.5, 1.0]))
    return BufferSettings(
        order=draw(st.sampled_from(Order)),
        capacity_groups=draw(st.none() | st.integers(groups_per_step, groups_per_step + 4)),
        capacity_bytes=draw(st.none() | st.integers(5, 30)),
        evict=draw(st.sampled_from(Evict)),
        groups_per_task=draw(st.none() | st.integers(1, 3)),
        max_staleness=max_staleness,
        on_stale=OnStale.DROP if max_staleness is None else draw(st.sampled_from(OnStale)),
        older_share=share,
        max_uses=draw(st.integers(2, 4)) if share else 1,
    )


class Compared:
    """A buffer and its reference, given the same, with all answers compared."""

    def __init__(self, buffer_settings: BufferSettings, groups_per_step: int, seed: int) -> None:
        self.buffer = SampleBuffer(buffer_settings, groups_per_step, seed=seed)
        self.reference = ReferenceBuffer(buffer_settings, groups_per_step, seed)
        self.version = 0
        self.offered: list[Entry] = []
        self.gone: list[Removal] = []
        self.updates: Counter[int] = Counter()  # in which a group was
        self.last: list[tuple[Entry, Entry]] = []  # of the last update, the buffer's and the reference's
        self.taken: list[tuple[Entry, Entry]] = []

    def add(self, behind: int, task: int, tokens: int, size: int) -> None:
        new = entry(len(self.offered), self.version - behind, task=task, tokens=tokens, size=size)
        self.offered.append(new)
        self.same(self.buffer.add(new, self.version), self.reference.add(dataclasses.replace(new), self.version))

    def take(self, most: int) -> None:
        for _ in range(min(most, self.buffer.available(self.version))):
            self.taken.append((self.buffer.take(self.version), self.reference.take()))
            assert self.taken[-1][0].group == self.taken[-1][1].group
        if not self.buffer.available(self.version):
            with pytest.raises(LookupError):
                self.buffer.take(self.version)

    def consume(self) -> None:
        self.updates.update(each.group for each in self.reference.taken)
        self.last, self.taken = self.taken, []
        self.version += 1
        self.same(self.buffer.consumed(self.version), self.reference.consumed(self.version))

    def put_back(self) -> None:
        self.buffer.put_back()
        self.reference.put_back()
        self.taken = []

    def roll_back(self) -> None:
        """Lose the last update; a group that it used and that left comes back."""
        if self.version == 0:
            return
        self.version -= 1
        lost, self.last, self.taken = self.last, [], []
        self.updates -= Counter(ours.group for ours, _ in lost)
        self.gone = [each for each in self.gone if each.group not in {ours.group for ours, _ in lost}]
        self.buffer.roll_back([(dataclasses.replace(ours), 1) for ours, _ in lost], self.version)
        self.reference.roll_back([(theirs, 1) for _, theirs in lost], self.version)

    def same(self, removals: list[Removal], gone: list[Any]) -> None:
        assert [(each.group, each.reason, each.trained) for each in removals] == gone
        self.gone += removals

    def check(self, pending: dict[int, int]) -> None:
        buffer, reference, version = self.buffer, self.reference, self.version
        held = reference.held()
        assert len(buffer) == len(held)
        assert all(each.group in buffer for each in held)
        assert buffer.size == sum(each.size for each in held)
        assert buffer.ready == len(reference.fresh) + len(reference.drawn[len(reference.taken) :])
        assert buffer.available(version) == len(reference.takeable())
        assert buffer.places == reference.groups_per_step - len(reference.taken)
        shifted = {version - behind: groups for behind, groups in pending.items()}
        assert buffer.waits_for(shifted, version) == reference.waits_for(shifted)
        self.check_promises(held)

    def check_promises(self, held: list[Entry]) -> None:
        """What holds whatever the reference says."""
        limits, reference = self.buffer.settings, self.reference
        assert sorted([each.group for each in held] + [each.group for each in self.gone]) == list(
            range(len(self.offered))
        )  # nobody is lost, nobody leaves twice
        assert all(uses <= limits.max_uses for uses in self.updates.values())
        assert limits.older_share or all(uses == 1 for uses in self.updates.values())
        for each in reference.taken:
            assert limits.max_staleness is None or self.version - each.version <= limits.max_staleness
        tasks = Counter(each.task for each in reference.taken)
        assert limits.groups_per_task is None or all(groups <= limits.groups_per_task for groups in tasks.values())
        self.check_counts(held)

    def check_counts(self, held: list[Entry]) -> None:
        lengths = self.buffer.lengths
        offered = Counter(length_class(each.longest_tokens) for each in self.offered)
        trained = Counter(length_class(self.offered[group].longest_tokens) for group in self.updates)
        waiting = Counter(length_class(each.longest_tokens) for each in held if not self.updates[each.group])
        dropped = Counter(
            (length_class(self.offered[each.group].longest_tokens), each.reason)
            for each in self.gone
            if not each.trained
        )
        for number, counts in lengths.items():
            assert counts.offered == offered[number]
            assert counts.trained == trained[number]
            assert counts.waiting == waiting[number]
            assert {(number, why): groups for why, groups in counts.dropped.items()} == {
                key: groups for key, groups in dropped.items() if key[0] == number
            }
        assert sum(counts.reused for counts in lengths.values()) == self.updates.total() - len(+self.updates)
        self.updates = +self.updates


adds = st.tuples(
    st.just("add"), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 1, 5, 70, 4000]), st.integers(1, 8)
)
operations = st.lists(
    adds
    | adds
    | st.tuples(st.just("take"), st.integers(1, 4))
    | st.tuples(st.sampled_from(["consume", "consume", "put_back", "roll_back"])),
    max_size=60,
)


@settings(max_examples=400, deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(0, 2**64 - 1), operations)
def test_the_buffer_does_what_plain_lists_do(
    data: st.DataObject, groups_per_step: int, seed: int, script: list[Any]
) -> None:
    compared = Compared(data.draw(buffer_settings(groups_per_step)), groups_per_step, seed)
    pending = data.draw(st.dictionaries(st.integers(0, 3), st.integers(0, 5), max_size=3))
    for name, *arguments in script:
        getattr(compared, name)(*arguments)
        compared.check(pending)


def test_by_default_the_oldest_version_goes_first_then_the_first_ready() -> None:
    buffer = SampleBuffer(BufferSettings(), 4)
    for group, version in enumerate([2, 0, 1, 0, 2, 1]):
        assert buffer.add(entry(group, version), 2) == []
    taken, removals = train(buffer, 2)
    assert taken == [1, 3, 2, 5]
    assert removals == [Removal(group, "uses", True) for group in taken]
    assert train(buffer, 3)[0] == [0, 4]


def test_one_task_never_fills_a_step_and_is_not_held_up_for_ever() -> None:
    buffer = SampleBuffer(BufferSettings(groups_per_task=2), 4)
    for group in range(6):
        buffer.add(entry(group, task=0), 0)
    buffer.add(entry(6, task=1), 0)
    steps = [train(buffer, version)[0] for version in range(4)]
    assert steps == [[0, 1, 6], [2, 3], [4, 5], []]


def test_older_groups_are_the_set_share_of_all_places() -> None:
    buffer = SampleBuffer(BufferSettings(older_share=0.3, max_uses=3, capacity_groups=40), 4, seed=3)
    again = total = number = 0
    seen: set[int] = set()
    for version in range(200):
        while buffer.available(version) < 4:
            buffer.add(entry(number, version, task=number % 5), version)
            number += 1
        taken, _ = train(buffer, version)
        if version >= 10:
            again += sum(group in seen for group in taken)
            total += len(taken)
        seen |= set(taken)
    assert again / total == pytest.approx(0.3, abs=1 / total)


def test_each_used_group_is_drawn_as_often_as_any_other() -> None:
    drawn: Counter[int] = Counter()
    for seed in range(4000):
        buffer = SampleBuffer(BufferSettings(older_share=0.5, max_uses=2), 4, seed=seed)
        for group in range(4):
            buffer.add(entry(group), 0)
        train(buffer, 0)
        drawn.update(train(buffer, 1)[0])
    assert drawn.total() == 2 * 4000
    assert chisquare([drawn[group] for group in range(4)]).pvalue > 0.001


def test_a_draw_depends_on_seed_and_version_alone() -> None:
    def drawn(seed: int, given_up: bool) -> list[int]:
        buffer = SampleBuffer(BufferSettings(older_share=0.5, max_uses=2), 4, seed=seed)
        for group in range(4):
            buffer.add(entry(group), 0)
        train(buffer, 0)
        if given_up:
            buffer.take(1)
            buffer.put_back()
        return [buffer.take(1).group for _ in range(buffer.available(1))]

    assert drawn(7, given_up=False) == drawn(7, given_up=True)
    assert len({tuple(drawn(seed, given_up=False)) for seed in range(20)}) > 3


def queue_of_short_and_long(on_stale: OnStale) -> SampleBuffer:
    """Each version two short groups come at once and a long one three versions later; a step takes two."""
    buffer = SampleBuffer(BufferSettings(order=Order.NEWEST, max_staleness=3, on_stale=on_stale), 2)
    number = 0
    for version in range(100):
        arrivals = [(version, 100), (version, 100)] + ([(version - 3, 100_000)] if version >= 3 else [])
        pending = {version - 3: sum(tokens > 100 for _, tokens in arrivals)}
        for late, (dispatched, tokens) in enumerate(arrivals):
            allowed = min(buffer.available(version), buffer.places - buffer.waits_for(pending, version))
            if late == 2:
                for _ in range(allowed):  # the trainer is ready before the long group is
                    buffer.take(version)
                pending = {}
            buffer.add(entry(number, dispatched, tokens=tokens), version)
            number += 1
        train(buffer, version)
    return buffer


def test_a_queue_that_drops_by_age_starves_long_tasks_and_says_so() -> None:
    dropping, waiting = (queue_of_short_and_long(on_stale).lengths for on_stale in OnStale)
    short, long = length_class(100), length_class(100_000)
    assert dropping[long].trained_share == 0.0
    assert dropping[long].dropped == {"stale": 97}
    assert (dropping[short].trained_share or 0) > 0.97
    assert waiting[long].trained_share == 1.0
    assert waiting[long].offered == dropping[long].offered


def test_a_group_that_comes_too_late_is_dropped_at_once() -> None:
    buffer = SampleBuffer(BufferSettings(max_staleness=1), 1)
    assert buffer.add(entry(0, version=0), 2) == [Removal(0, "stale", False)]
    assert buffer.add(entry(1, version=1), 2) == []
    assert buffer.consumed(3) == [Removal(1, "stale", False)]


def test_a_group_that_no_buffer_would_hold_pushes_nobody_out() -> None:
    buffer = SampleBuffer(BufferSettings(capacity_bytes=10), 1)
    buffer.add(entry(0, size=10), 0)
    assert buffer.add(entry(1, size=11), 0) == [Removal(1, "larger than the buffer", False)]
    assert buffer.add(entry(2, size=3), 0) == [Removal(0, "evicted", False)]


def test_what_a_step_has_taken_is_not_evicted() -> None:
    buffer = SampleBuffer(BufferSettings(capacity_groups=1), 1)
    buffer.add(entry(0), 0)
    buffer.take(0)
    assert buffer.add(entry(1), 0) == []
    assert buffer.add(entry(2), 0) == [Removal(1, "evicted", False)]
    buffer.put_back()
    assert buffer.add(entry(3), 0) == [Removal(0, "evicted", False), Removal(2, "evicted", False)]


def test_used_groups_leave_first_where_asked() -> None:
    chosen = BufferSettings(capacity_groups=2, evict=Evict.MOST_USED, older_share=0.5, max_uses=9)
    buffer = SampleBuffer(chosen, 1)
    buffer.add(entry(0), 0)
    train(buffer, 0)
    buffer.put_back()
    buffer.add(entry(1), 1)
    assert buffer.add(entry(2), 1) == []  # group 0 is drawn for the step at version 1: it does not count
    assert buffer.consumed(2) == [Removal(0, "evicted", True)]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"capacity_groups": 0}, "capacity_groups"),
        ({"capacity_bytes": -1}, "capacity_bytes"),
        ({"groups_per_task": 0}, "groups_per_task"),
        ({"max_staleness": -1}, "max_staleness"),
        ({"max_uses": 0}, "max_uses"),
        ({"older_share": 1.5, "max_uses": 2}, "older_share"),
        ({"older_share": float("nan"), "max_uses": 2}, "older_share"),
        ({"older_share": 0.5}, "max_uses"),
        ({"max_uses": 2}, "max_uses: 2 changes nothing without older_share"),
        ({"on_stale": OnStale.WAIT}, "max_staleness"),
        ({"capacity_groups": 3}, "capacity_groups: 3, less than the 4 of a step"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        SampleBuffer(BufferSettings(**given), 4)


def test_wrong_calls_are_refused() -> None:
    buffer = SampleBuffer(BufferSettings(), 1)
    buffer.add(entry(0), 0)
    with pytest.raises(ValueError, match="already"):
        buffer.add(entry(0), 0)
    with pytest.raises(ValueError, match="version 1"):
        buffer.available(1)

    with pytest.raises(ValueError, match="cannot be lost"):
        buffer.roll_back([(entry(1), 1)], 0)


@given(st.integers(0, 10**9))
def test_length_classes_are_powers_of_two(tokens: int) -> None:
    number = length_class(tokens)
    least, most = class_bounds(number)
    assert least <= tokens <= most
    assert number == 0 or most == 2 * least - 1


@pytest.mark.parametrize(("share", "uses"), [(0.25, 2), (0.25, 5), (0.5, 4), (0.5, 2), (0.7, 3), (0.9, 4), (1.0, 9)])
def test_used_groups_pile_up_where_their_settings_say_so(share: float, uses: int) -> None:
    limits = BufferSettings(older_share=share, max_uses=uses)
    buffer, held, offered = SampleBuffer(limits, 8, seed=3), [], 0
    for version in range(600):
        while buffer.ready < 8:
            buffer.add(entry(offered, version), version)
            offered += 1
        train(buffer, version)
        held.append(len(buffer))
    assert (held[-1] > 1.8 * held[299] > 500) == limits.piles_up
    assert limits.piles_up or held[-1] < 100
    assert not dataclasses.replace(limits, max_staleness=3).piles_up
