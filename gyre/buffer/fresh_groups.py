"""Groups that no update has used, in the order in which steps take them, at most so many of one task in a step."""

from __future__ import annotations

from dataclasses import dataclass, field

from .removable_heap import Key, RemovableHeap


@dataclass(slots=True)
class _Task:
    """The waiting groups of one task."""

    waiting: RemovableHeap = field(default_factory=RemovableHeap)
    in_step: int = 0  # groups of the open step, of any kind
    takeable: int = 0  # of those that wait, by the open step


class FreshGroups:
    """A queue of queues: each task's groups by key, and the tasks with room by the key of their first group.

    So a task at its limit hides its groups in one step, however many they are. Every method is O(log n), amortised.
    """

    def __init__(self, per_task: int | None) -> None:
        """Make an empty queue; a step takes at most `per_task` groups of one task (None: any number)."""
        self._per_task = per_task
        self._tasks: dict[int, _Task] = {}
        self._open = RemovableHeap()  # tasks with room that have a group
        self._in_step: set[int] = set()  # tasks of the open step
        self.waiting = 0  # groups that no step has taken
        self.takeable = 0  # groups that the open step may take, the limit of each task counted

    def push(self, group: int, task: int, key: Key) -> None:
        """Let a group wait, or give one that waits another key."""
        name = self._name(task)
        of_task = self._tasks.setdefault(name, _Task())
        before = len(of_task.waiting)
        of_task.waiting.push(group, key)
        self.waiting += len(of_task.waiting) - before
        self._refresh(name, of_task)

    def discard(self, group: int, task: int) -> None:
        """Remove a group that waits."""
        name = self._name(task)
        of_task = self._tasks[name]
        of_task.waiting.discard(group)
        self.waiting -= 1
        self._refresh(name, of_task)

    def first(self) -> int:
        """Return the group that the open step takes next; IndexError where `takeable` is 0."""
        return self._tasks[self._open.peek()].waiting.peek()

    def occupy(self, task: int) -> None:
        """Count a group of `task` in the open step."""
        name = self._name(task)
        of_task = self._tasks.setdefault(name, _Task())
        of_task.in_step += 1
        self._in_step.add(name)
        self._refresh(name, of_task)

    def next_step(self) -> None:
        """Begin to count anew: no group is in the open step."""
        tasks, self._in_step = sorted(self._in_step), set()
        for name in tasks:
            of_task = self._tasks[name]
            of_task.in_step = 0
            self._refresh(name, of_task)

    def _name(self, task: int) -> int:
        return task if self._per_task is not None else 0  # without a limit all are of one task

    def _refresh(self, name: int, task: _Task) -> None:
        """Bring the sum, and the task's place among those with room, up to date."""
        waiting = len(task.waiting)
        takeable = waiting if self._per_task is None else min(waiting, max(0, self._per_task - task.in_step))
        self.takeable += takeable - task.takeable
        task.takeable = takeable
        if takeable:
            self._open.push(name, task.waiting.first_key())
            return
        self._open.discard(name)
        if not waiting and not task.in_step:
            del self._tasks[name]
