"""All groups in flight: their counts, the queue of executions to start, and which ready group is next."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from .groups import Execution, ExecutionState, Group, GroupState


@dataclass(slots=True)
class Pool:
    """Groups dispatched and neither consumed nor dropped. Group g holds executions g*N ... g*N + N-1."""

    group_size: int
    groups: dict[int, Group] = field(default_factory=dict)
    dispatched: int = 0  # executions
    started: int = 0
    finished: int = 0
    dispatched_groups: int = 0
    pending_groups: int = 0  # neither ready, in training, consumed nor dropped
    ready_groups: int = 0
    _queue: deque[Execution] = field(default_factory=deque)
    _ready: list[tuple[int, int, int]] = field(default_factory=list)  # heap of (version, order of readiness, group)
    _readied: int = 0

    @property
    def water_level(self) -> int:
        """Executions dispatched and not finished."""
        return self.dispatched - self.finished

    @property
    def running(self) -> int:
        """Executions started and not finished."""
        return self.water_level - len(self._queue)

    @property
    def outstanding_groups(self) -> int:
        """Groups dispatched and neither consumed nor dropped."""
        return len(self.groups)

    def dispatch(self, version: int, time_s: float) -> Group:
        """Add the next group at weight version `version`; its executions join the end of the queue."""
        number = self.dispatched_groups
        first = number * self.group_size
        members = tuple(Execution(first + place, number) for place in range(self.group_size))
        group = self.groups[number] = Group(number, version, time_s, members)
        self._queue.extend(members)
        self.dispatched_groups += 1
        self.pending_groups += 1
        self.dispatched += self.group_size
        return group

    def startable(self, capacity: int) -> Iterator[Execution]:
        """Start queued executions, first in first out, while fewer than `capacity` run."""
        while self._queue and self.running < capacity:
            execution = self._queue.popleft()
            self.started += 1
            execution.move(ExecutionState.RUNNING)
            group = self.groups[execution.group]
            if group.state is GroupState.DISPATCHED:
                group.move(GroupState.RUNNING)
            yield execution

    def execution(self, number: int) -> Execution | None:
        """Return an execution of a group in flight, or None if its group was consumed or dropped."""
        group = self.groups.get(number // self.group_size)
        return group.members[number % self.group_size] if group else None

    def end(self, execution: Execution) -> None:
        """Count that an execution ended (finished, lost or cancelled)."""
        if execution.state is ExecutionState.QUEUED:
            self._queue.remove(execution)
        self.finished += 1
        self.groups[execution.group].open_members -= 1

    def settle(self, execution: Execution, state: ExecutionState) -> Group:
        """Record an execution's last state, scored or dropped; return its group, moved on if that was the last one."""
        execution.move(state)
        group = self.groups[execution.group]
        group.unscored_members -= 1
        return group

    def make_ready(self, group: Group, time_s: float) -> None:
        """Put a group among those that a step may take."""
        group.move(GroupState.READY)
        group.ready_s = time_s
        heapq.heappush(self._ready, (group.version, self._readied, group.group))
        self._readied += 1
        self.pending_groups -= 1
        self.ready_groups += 1

    def take(self) -> Group:
        """Take the ready group of the oldest version, first ready first."""
        _, _, number = heapq.heappop(self._ready)
        group = self.groups[number]
        group.move(GroupState.TRAINING)
        self.ready_groups -= 1
        return group

    def consume(self, number: int) -> None:
        """Forget a group whose samples an update used."""
        self.groups.pop(number).move(GroupState.CONSUMED)

    def drop(self, group: Group) -> None:
        """Forget a group that is not ready and never will be."""
        group.move(GroupState.DROPPED)
        self.pending_groups -= 1
        del self.groups[group.group]
