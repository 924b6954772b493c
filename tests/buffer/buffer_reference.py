"""What the buffer promises, in plain lists that are gone through whole at every question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from gyre.buffer.entry import Entry
from gyre.buffer.settings import BufferSettings, Evict, OnStale, Order
from gyre.splitmix import WORD_MASK, mixed

T = TypeVar("T")
Gone = tuple[int, str, bool]  # group, reason, trained


@dataclass
class ReferenceBuffer:
    """Groups held: waiting ones in two lists, those drawn for the open step, and those that it took."""

    settings: BufferSettings
    groups_per_step: int
    seed: int = 0
    version: int = 0
    fresh: list[Entry] = field(default_factory=list)
    used: list[tuple[int, list[Entry]]] = field(default_factory=list)  # by task, in the order of the draws
    drawn: list[Entry] = field(default_factory=list)
    taken: list[Entry] = field(default_factory=list)
    arrived: dict[int, int] = field(default_factory=dict)
    arrivals: Iterator[int] = field(default_factory=count)
    parked: dict[int, list[Entry]] = field(default_factory=dict)  # of tasks at their limit, while a draw goes on

    def waiting(self) -> list[Entry]:
        """All that may be evicted."""
        return [*self.fresh, *(entry for _, entries in self.used for entry in entries)]

    def held(self) -> list[Entry]:
        """All that has not left."""
        return [*self.waiting(), *self.drawn[len(self.taken) :], *self.taken]

    def stale(self, entry: Entry) -> bool:
        most = self.settings.max_staleness
        return most is not None and self.version - entry.version > most

    def due(self, entry: Entry) -> bool:
        settings = self.settings
        if settings.on_stale is not OnStale.WAIT or settings.max_staleness is None:
            return False
        return self.version - entry.version == settings.max_staleness

    def in_order(self) -> list[Entry]:
        """Fresh groups as steps take them, task limits aside."""
        sign = -1 if self.settings.order is Order.NEWEST else 1
        due = sorted(filter(self.due, self.fresh), key=lambda entry: -self.arrived[entry.group])
        others = [entry for entry in self.fresh if not self.due(entry)]
        return due + sorted(others, key=lambda entry: (sign * entry.version, self.arrived[entry.group]))

    def takeable(self) -> list[Entry]:
        """What the open step would take, if nothing else came."""
        left = self.drawn[len(self.taken) :]
        chosen = list(left)
        tasks = Counter(entry.task for entry in [*self.taken, *left])
        limit = self.settings.groups_per_task
        for entry in self.in_order():
            if len(self.taken) + len(chosen) < self.groups_per_step and (limit is None or tasks[entry.task] < limit):
                tasks[entry.task] += 1
                chosen.append(entry)
        return chosen

    def waits_for(self, pending: dict[int, int]) -> int:
        """Places for due groups in flight, of those that drawn groups leave."""
        if self.settings.on_stale is not OnStale.WAIT or self.settings.max_staleness is None:
            return 0
        left = self.groups_per_step - len(self.taken) - len(self.drawn[len(self.taken) :])
        return min(pending.get(self.version - self.settings.max_staleness, 0), left)

    def add(self, entry: Entry, version: int) -> list[Gone]:
        self.version = version
        self.arrived[entry.group] = next(self.arrivals)
        if self.stale(entry):
            return [(entry.group, "stale", False)]
        most = self.settings.capacity_bytes
        if most is not None and entry.size > most:
            return [(entry.group, "larger than the buffer", False)]
        self.fresh.append(entry)
        return self.evict()

    def take(self) -> Entry:
        entry = self.takeable()[0]
        if entry.uses == 0:
            self.fresh.remove(entry)
        self.taken.append(entry)
        return entry

    def consumed(self, version: int) -> list[Gone]:
        self.version = version
        taken = self.end_step()
        gone: list[Gone] = []
        for entry in taken:
            entry.uses += 1
            if not self.settings.older_share or entry.uses == self.settings.max_uses:
                gone.append((entry.group, "uses", True))
            elif self.stale(entry):
                gone.append((entry.group, "stale", True))
            else:
                self.put_used(entry)
        old = [entry for entry in self.waiting() if self.stale(entry)]
        for entry in sorted(old, key=lambda each: (each.version, self.arrived[each.group])):
            self.remove(entry)
            gone.append((entry.group, "stale", entry.uses > 0))
        gone += self.evict()
        self.drawn = self.draw(self.older_places(version))
        return gone

    def put_back(self) -> None:
        drawn = self.drawn
        for entry in self.end_step():
            self.put_used(entry) if entry.uses else self.fresh.append(entry)
        for entry in drawn:
            self.remove(entry)
        self.drawn = drawn

    def roll_back(self, lost: list[tuple[Entry, int]], version: int) -> None:
        self.version = version
        for entry in self.end_step():
            self.put_used(entry) if entry.uses else self.fresh.append(entry)
        waiting = self.waiting()
        for entry, uses in lost:
            entry.uses -= uses
            if entry not in waiting:
                waiting.append(entry)
        waiting.sort(key=lambda entry: (entry.ready_s, entry.group))
        self.arrivals = count()
        self.arrived = {entry.group: next(self.arrivals) for entry in waiting}
        self.fresh, self.used = [], []
        for entry in waiting:
            self.put_used(entry) if entry.uses else self.fresh.append(entry)
        self.drawn = self.draw(self.older_places(version))

    def older_places(self, version: int) -> int:
        share = self.settings.older_share * self.groups_per_step
        return math.floor((version + 1) * share) - math.floor(version * share)

    def end_step(self) -> list[Entry]:
        taken, left = self.taken, self.drawn[len(self.taken) :]
        self.taken, self.drawn = [], []
        for entry in left:
            self.put_used(entry)
        return taken

    def evict(self) -> list[Gone]:
        order = {
            Evict.OLDEST: lambda each: (each.version, self.arrived[each.group]),
            Evict.NEWEST: lambda each: (-each.version, -self.arrived[each.group]),
            Evict.MOST_USED: lambda each: (-each.uses, each.version, self.arrived[each.group]),
            Evict.LARGEST: lambda each: (-each.size, each.version, self.arrived[each.group]),
        }[self.settings.evict]
        gone = []
        while self.full():
            entry = min(self.waiting(), key=order)
            self.remove(entry)
            gone.append((entry.group, "evicted", entry.uses > 0))
        return gone

    def full(self) -> bool:
        waiting, settings = self.waiting(), self.settings
        return (settings.capacity_groups is not None and len(waiting) > settings.capacity_groups) or (
            settings.capacity_bytes is not None and sum(entry.size for entry in waiting) > settings.capacity_bytes
        )

    def remove(self, entry: Entry) -> None:
        if entry.uses == 0:
            self.fresh.remove(entry)
            return
        index = next(index for index, (_, entries) in enumerate(self.used) if entry in entries)
        entries = self.used[index][1]
        last_to(entries, entries.index(entry))
        if not entries:
            last_to(self.used, index)

    def put_used(self, entry: Entry) -> None:
        name = entry.task if self.settings.groups_per_task is not None else 0
        for task, entries in self.used:
            if task == name:
                entries.append(entry)
                return
        self.used.append((name, [entry]))

    def draw(self, groups: int) -> list[Entry]:
        """Draw a task and one of its groups, again and again, from those left; then all that were drawn leave."""
        key = mixed(mixed(0x5EED_0F_01DE5 ^ mixed(self.seed)) ^ mixed(self.version))
        words = (mixed((key + number) & WORD_MASK) for number in count())
        drawn: list[Entry] = []
        aside: dict[int, list[Entry]] = {}
        while len(drawn) < groups and self.used:
            index = next(words) % len(self.used)
            task, entries = self.used[index]
            entry = last_to(entries, next(words) % len(entries))
            drawn.append(entry)
            aside.setdefault(task, []).append(entry)
            if not entries or len(aside[task]) == self.settings.groups_per_task:
                if entries:
                    self.parked[task] = entries
                last_to(self.used, index)
        for task, entries in aside.items():
            for entry in entries:
                self.unpark(task)
                self.put_used(entry)
        for entry in drawn:
            self.remove(entry)
        return drawn

    def unpark(self, task: int) -> None:
        if task in self.parked:
            self.used.append((task, self.parked.pop(task)))


def last_to(items: list[T], index: int) -> T:
    """Remove an item; the last one takes its place."""
    item, last = items[index], items.pop()
    if index < len(items):
        items[index] = last
    return item
