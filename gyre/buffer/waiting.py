"""The groups that wait: for their first update in the order of steps, for another one to be drawn from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .entry import Entry
from .eviction import Eviction
from .fresh_groups import FreshGroups
from .removable_heap import Key, RemovableHeap
from .settings import BufferSettings, OnStale, Order
from .used_groups import UsedGroups


@dataclass(frozen=True, slots=True)
class Held:
    """A group in the buffer."""

    entry: Entry
    arrived: int  # before it, as many came


class Waiting:
    """Orders of the same groups: by who is taken next, who is evicted next, and who is stale first."""

    def __init__(self, settings: BufferSettings, seed: int) -> None:
        """Begin with nothing, at version 0; `seed` keys the draws."""
        self.waits_for_due = settings.on_stale is OnStale.WAIT and settings.max_staleness is not None
        self.most_staleness = math.inf if settings.max_staleness is None else settings.max_staleness
        self.version = 0
        self.fresh = FreshGroups(settings.groups_per_task)
        self.used = UsedGroups(settings.groups_per_task, seed)
        self.eviction = Eviction(settings)
        self._newest_first = settings.order is Order.NEWEST
        self._by_version: dict[int, dict[int, Held]] = {}  # version at dispatch to groups
        self._versions = RemovableHeap()  # of `_by_version`

    def add(self, held: Held) -> None:
        """Let a group wait."""
        entry = held.entry
        if entry.uses:
            self.used.add(entry.group, entry.task)
        else:
            self.fresh.push(entry.group, entry.task, self._rank(held))
        if entry.version not in self._by_version:
            self._by_version[entry.version] = {}
            self._versions.push(entry.version, (entry.version,))
        self._by_version[entry.version][entry.group] = held
        self.eviction.add(entry, held.arrived)

    def discard(self, held: Held) -> None:
        """Let a group wait no longer."""
        entry = held.entry
        (self.used if entry.uses else self.fresh).discard(entry.group, entry.task)
        of_version = self._by_version[entry.version]
        del of_version[entry.group]
        if not of_version:
            del self._by_version[entry.version]
            self._versions.discard(entry.version)
        self.eviction.discard(entry)

    def is_stale(self, entry: Entry) -> bool:
        """Whether a group may not be trained any more."""
        return self.version - entry.version > self.most_staleness

    def discard_stale(self) -> list[Held]:
        """Let those wait no longer that may not be trained any more; return them, the oldest first."""
        gone: list[Held] = []
        while len(self._versions) and self.version - self._versions.peek() > self.most_staleness:
            oldest = sorted(self._by_version[self._versions.peek()].values(), key=_arrived)
            for held in oldest:
                self.discard(held)
            gone += oldest
        return gone

    def mark_due(self) -> None:
        """Let groups that have become due be the first, where steps wait for such."""
        if self.waits_for_due:
            for held in self._by_version.get(self.due_version, {}).values():
                if not held.entry.uses:
                    self.fresh.push(held.entry.group, held.entry.task, self._rank(held))

    @property
    def due_version(self) -> int:
        """Version at dispatch of groups that the open step is the last to take, where there is a most staleness."""
        return self.version - int(self.most_staleness)

    def _rank(self, held: Held) -> Key:
        """Return the key by which never used groups are taken, least first.

        Of the due ones the last to become ready is first: it took longest, and a place was kept for it.
        """
        version = held.entry.version
        if self.waits_for_due and version <= self.due_version:
            return (0, version, -held.arrived)
        return (1, -version if self._newest_first else version, held.arrived)


def _arrived(held: Held) -> int:
    return held.arrived
