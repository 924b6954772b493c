"""All groups in flight: their counts, the queue of executions to start, and the buffer of those that are ready."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from .buffer.buffer import SampleBuffer
from .buffer.entry import Entry
from .buffer.removal import Removal
from .data_cursor import DataCursor
from .groups import Execution, ExecutionState, Group, GroupState

SAMPLE_TOKEN_BYTES: Final = 21  # of a sample in memory, a token: `gyre.trajectory.samples.TOKEN_FIELDS`
_USED: Final = frozenset({GroupState.TRAINING, GroupState.CONSUMED})


@dataclass(slots=True)
class Pool:
    """Groups dispatched and not dropped, until no update will use them any more.

    Group g holds executions g*stride ... g*stride + stride - 1.
    Those that were lost are among the members until the group is gone; those that take their places come after them.
    """

    stride: int
    buffer: SampleBuffer
    groups: dict[int, Group] = field(default_factory=dict)
    dispatched: int = 0  # executions
    started: int = 0
    finished: int = 0
    dispatched_groups: int = 0
    outstanding_groups: int = 0  # dispatched, and neither used by an update nor dropped
    pending: Counter[int] = field(default_factory=Counter)  # groups that are not ready yet, by version at dispatch
    pending_groups: int = 0
    queued: int = 0  # executions that wait for a place
    _queue: deque[Execution] = field(default_factory=deque)  # those that wait, and some that were cancelled

    @property
    def water_level(self) -> int:
        """Executions dispatched and not finished."""
        return self.dispatched - self.finished

    @property
    def running(self) -> int:
        """Executions started and not finished."""
        return self.water_level - self.queued

    @property
    def ready_groups(self) -> int:
        """Groups that are ready and that no step has taken."""
        return self.buffer.ready

    def takeable_groups(self, version: int) -> int:
        """Groups that the open step, or the next one, may take now at `version` updates."""
        if self.buffer.ready == 0:
            return 0  # so most events find it
        kept = self.buffer.waits_for(self.pending, version)
        return max(0, min(self.buffer.available(version), self.buffer.places - kept))

    @property
    def cursor(self) -> DataCursor:
        """The place in the data up to which every group was trained or dropped; costs O(groups in flight)."""
        return DataCursor.of(
            self.dispatched_groups, {number for number, group in self.groups.items() if not group.trained}
        )

    def dispatch(self, version: int, time_s: float, executions: int, task: int) -> Group:
        """Add the next group at weight version `version`; its executions join the end of the queue."""
        number = self.dispatched_groups
        first = number * self.stride
        members = [Execution(first + place, number) for place in range(executions)]
        group = self.groups[number] = Group(number, version, time_s, members, task)
        self._queue.extend(members)
        self.dispatched_groups += 1
        self.outstanding_groups += 1
        self.pending_groups += 1
        self.pending[version] += 1
        self._count_dispatched(executions)
        return group

    def replace(self, group: Group, executions: int) -> list[Execution]:
        """Add executions to a group that lost some; they go to the front of the queue.

        The others of their group ended or run already and grow stale while they wait, and steps take the oldest groups
        first: at the end of the queue they would hold up what is needed next.
        """
        first = group.group * self.stride + len(group.members)
        added = [Execution(first + place, group.group) for place in range(executions)]
        group.add(added)
        self._queue.extendleft(reversed(added))
        self._count_dispatched(executions)
        return added

    def _count_dispatched(self, executions: int) -> None:
        self.dispatched += executions
        self.queued += executions

    def startable(self, capacity: int) -> Iterator[Execution]:
        """Start queued executions, first in first out, while fewer than `capacity` run."""
        while self.queued and self.running < capacity:
            execution = self._queue.popleft()
            if execution.state is not ExecutionState.QUEUED:
                continue  # cancelled while it waited
            self.started += 1
            self.queued -= 1
            execution.move(ExecutionState.RUNNING)
            group = self.groups[execution.group]
            if group.state is GroupState.DISPATCHED:
                group.move(GroupState.RUNNING)
            yield execution

    def execution(self, number: int) -> Execution | None:
        """Return an execution of a group in flight, or None if its group was consumed or dropped."""
        group = self.groups.get(number // self.stride)
        place = number % self.stride
        return group.members[place] if group and place < len(group.members) else None

    def end(self, execution: Execution) -> None:
        """Count that an execution ended (finished, lost or cancelled)."""
        self.queued -= execution.state is ExecutionState.QUEUED
        self.finished += 1
        self.groups[execution.group].open_members -= 1

    def settle(self, execution: Execution, state: ExecutionState) -> Group:
        """Record an execution's last state, scored or dropped; return its group."""
        execution.move(state)
        group = self.groups[execution.group]
        group.unscored_members -= 1
        group.scored_members += state is ExecutionState.SCORED
        return group

    def cancel(self, execution: Execution) -> None:
        """Drop an execution that waits, runs or is being scored."""
        if execution.state is not ExecutionState.SCORING:
            self.end(execution)
        self.settle(execution, ExecutionState.DROPPED)

    def make_ready(self, group: Group, time_s: float, version: int) -> Sequence[Removal]:
        """Put a group among those that a step may take, at `version` updates; return what leaves the buffer for it."""
        group.move(GroupState.READY)
        group.ready_s = time_s
        self._no_longer_pending(group)
        return self.buffer.add(entry_of(group), version)

    def take(self, version: int) -> Group:
        """Take the group that the buffer says is next for the step at `version` updates."""
        group = self.groups[self.buffer.take(version).group]
        group.move(GroupState.TRAINING)
        return group

    def consume(self, taken: Sequence[int], version: int) -> Sequence[Removal]:
        """Record that the update that made `version` used groups; return what leaves the buffer, maybe others."""
        for number in taken:
            group = self.groups[number]
            group.move(GroupState.CONSUMED)
            self.outstanding_groups -= not group.trained
            group.trained.append(version)
        removals = self.buffer.consumed(version)
        gone = {removal.group for removal in removals}
        for number in taken:
            if number not in gone:
                self.groups[number].move(GroupState.READY)
        return removals

    def roll_back(self, kept: Iterable[Group], version: int) -> None:
        """Forget the updates after `version` and the open step: what they used waits again, `kept` groups too."""
        self.groups |= {group.group: group for group in kept}
        lost: list[tuple[Entry, int]] = []
        for group in self.groups.values():
            uses = sum(made > version for made in group.trained)
            if uses:
                lost.append((entry_of(group), uses))
                del group.trained[-uses:]
                self.outstanding_groups += not group.trained
            if group.state in _USED:
                group.move(GroupState.READY)
        self.buffer.roll_back(lost, version)

    def forget(self, removal: Removal) -> Group:
        """Forget a group that left the buffer; return it."""
        group = self.groups.pop(removal.group)
        if group.state is GroupState.READY:
            group.move(GroupState.CONSUMED if removal.trained else GroupState.DROPPED)
        self.outstanding_groups -= not removal.trained
        return group

    def drop(self, group: Group) -> None:
        """Forget a group that is not ready and never will be."""
        group.move(GroupState.DROPPED)
        self._no_longer_pending(group)
        self.outstanding_groups -= 1
        del self.groups[group.group]

    def _no_longer_pending(self, group: Group) -> None:
        self.pending_groups -= 1
        self.pending[group.version] -= 1
        if not self.pending[group.version]:
            del self.pending[group.version]


def entry_of(group: Group) -> Entry:
    """Return a ready group as the buffer knows it."""
    tokens = sum(group.sample_tokens)
    longest = max((sum(count for _, count in member.version_tokens) for member in group.scored), default=0)
    size = tokens * SAMPLE_TOKEN_BYTES
    return Entry(
        group.group, group.task, group.version, group.ready_s or 0.0, tokens, longest, size, len(group.trained)
    )
