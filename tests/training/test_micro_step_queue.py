"""The queue of micro-steps against a model that says it with lists."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

pytest.importorskip("megatron.core", reason="training stands on megatron-core")
from gyre.backends.training.micro_step_queue import MicroStepQueue, MicroStepState

LEASE_S = 3.0
cells = st.integers(0, 3)


class Queue(RuleBasedStateMachine):
    """Cells claim, return, freeze, die and leave in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = MicroStepQueue(LEASE_S)
        self.now_s = 0.0
        self.offered: list[int] = []  # versions, by number
        self.claims: dict[int, tuple[int, float]] = {}  # number: (cell, expires)
        self.done: set[int] = set()
        self.commits = 0
        self.seen: list[tuple[int, int]] = []  # what any cell ever claimed: it may send it whenever it likes

    def waiting(self) -> list[tuple[int, int]]:
        numbers = range(len(self.offered))
        return sorted((self.offered[n], n) for n in numbers if n not in self.done and n not in self.claims)

    @rule(version=st.integers(0, 2))
    def offer(self, version: int) -> None:
        self.queue.offer(len(self.offered), version)
        self.offered.append(version)

    @rule(seconds=st.floats(0, 4))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(cell=cells)
    def claim(self, cell: int) -> None:
        self.claims = {n: (c, at) for n, (c, at) in self.claims.items() if at > self.now_s}
        waiting = self.waiting()
        number = self.queue.claim(cell, self.now_s)
        assert number == (waiting[0][1] if waiting else None)
        if number is not None:
            self.claims[number] = (cell, self.now_s + LEASE_S)
            self.seen.append((cell, number))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        if not self.seen:
            return
        _, number = data.draw(st.sampled_from(self.seen))
        assert self.queue.commit(number) == (number not in self.done)
        self.commits += number not in self.done
        self.done.add(number)
        self.claims.pop(number, None)

    @rule(cell=cells)
    def leave(self, cell: int) -> None:
        held = sorted(n for n, (c, _) in self.claims.items() if c == cell)
        assert self.queue.leave(cell) == held
        for number in held:
            del self.claims[number]

    @rule()
    def never_offered(self) -> None:
        assert not self.queue.commit(len(self.offered))

    @invariant()
    def each_is_committed_at_most_once(self) -> None:
        assert self.queue.committed == len(self.done) == self.commits
        assert self.queue.all_done == (len(self.done) == len(self.offered))
        assert self.queue.waits == bool(self.waiting())

    def teardown(self) -> None:
        """One live cell is enough to finish whatever the others did."""
        while (number := self.queue.claim(9, self.now_s)) is not None or not self.queue.all_done:
            if number is None:
                expiry = self.queue.next_expiry_s
                assert expiry is not None
                self.now_s = max(self.now_s, expiry)
            else:
                assert self.queue.commit(number)
                self.commits += 1
        assert self.commits == len(self.offered)
        assert all(self.queue.state(number) is MicroStepState.DONE for number in range(len(self.offered)))


TestQueue = Queue.TestCase
