"""What a journal says of groups, by rules of its own: which were trained or dropped, and none too often."""

from __future__ import annotations

from collections.abc import Iterable

from gyre import commands as cmd
from gyre import events as ev
from gyre.journal import Entry


class Ledger:
    """Reads a journal entry by entry and asserts what must hold of any run, also of one that was restarted."""

    def __init__(self, keeps: bool, max_uses: int = 1) -> None:
        self.keeps = keeps
        self.max_uses = max_uses
        self.version = 0
        self.durable = 0
        self.dispatched: dict[int, int] = {}  # group -> task
        self.members: dict[int, set[int]] = {}
        self.trained: dict[int, list[int]] = {}  # group -> versions that it helped to make
        self.dropped: set[int] = set()
        self.released: set[int] = set()
        self.offered: set[int] = set()  # by the open step

    def read(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        match entry:
            case cmd.DispatchGroup():
                assert entry.group == len(self.dispatched)
                self.dispatched[entry.group] = entry.task
                self.members[entry.group] = set(entry.executions)
            case cmd.AddExecutions():
                assert not self.members[entry.group] & set(entry.executions)
                self.members[entry.group] |= set(entry.executions)
            case cmd.OpenStep():
                assert entry.step == self.version
                self.offered = set()
            case cmd.OfferMicroSteps():
                assert entry.group not in self.offered | self.dropped | self.released
                assert len(self.trained.get(entry.group, ())) < self.max_uses
                self.offered.add(entry.group)
            case cmd.DropGroup():
                assert entry.group not in self.dropped | self.trained.keys() | self.offered
                self.dropped.add(entry.group)
            case cmd.ReleaseGroup():
                assert entry.group not in self.released
                assert not self.keeps or self.trained[entry.group][-1] <= self.durable
                self.released.add(entry.group)
            case ev.UpdateApplied():
                self.update(entry.version)
            case ev.CheckpointSaved():
                self.durable = max(self.durable, entry.version)
            case ev.RunResumed():
                self.resume(entry.version)

    def update(self, version: int) -> None:
        assert version == self.version + 1
        self.version = version
        for group in self.offered:
            self.trained.setdefault(group, []).append(version)
        self.offered = set()

    def resume(self, version: int) -> None:
        if version > self.version:
            self.update(version)
        elif version < self.version:
            kept = {group: [each for each in made if each <= version] for group, made in self.trained.items()}
            self.trained = {group: made for group, made in kept.items() if made}
            self.version = version
            self.offered = set()
        assert not self.released & (self.dispatched.keys() - self.trained.keys())
