"""Groups that an earlier update has used and a later one may use again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from ..splitmix import WORD_MASK, mixed

_PURPOSE: Final = 0x5EED_0F_01DE5  # so that no other draw of the same seed gives the same words


class _Bag:
    """Integers in any order, each once; to add, to remove and to take the n-th is O(1)."""

    def __init__(self) -> None:
        self._items: list[int] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: int) -> int:
        return self._items[place]

    def add(self, item: int) -> None:
        if item not in self._places:
            self._places[item] = len(self._items)
            self._items.append(item)

    def discard(self, item: int) -> None:
        """Remove an item, if it is there; the last one takes its place."""
        place = self._places.pop(item, None)
        if place is None:
            return
        last = self._items.pop()
        if last != item:
            self._items[place] = last
            self._places[last] = place


class UsedGroups:
    """Groups to draw from: all alike, or with a limit of groups of one task first a task, then one of its groups."""

    def __init__(self, per_task: int | None, seed: int) -> None:
        """Make it empty; a draw gives at most `per_task` groups of one task (None: any number)."""
        self._per_task = per_task
        self._key = mixed(_PURPOSE ^ mixed(seed & WORD_MASK))
        self._tasks = _Bag()
        self._groups: dict[int, _Bag] = {}  # of each task

    def add(self, group: int, task: int) -> None:
        """Put a group among those to draw from."""
        name = task if self._per_task is not None else 0
        self._groups.setdefault(name, _Bag()).add(group)
        self._tasks.add(name)

    def discard(self, group: int, task: int) -> None:
        """Take a group away."""
        name = task if self._per_task is not None else 0
        groups = self._groups[name]
        groups.discard(group)
        if not groups:
            del self._groups[name]
            self._tasks.discard(name)

    def draw(self, groups: int, version: int) -> list[int]:
        """Return up to `groups` of them for the step at `version`, in order, all different; they stay here.

        The same seed, version and history give the same ones.
        """
        words = self._words(version)
        drawn: list[int] = []
        aside: dict[int, list[int]] = {}  # of each task that has some drawn
        while len(drawn) < groups and self._tasks:
            name = self._tasks[next(words) % len(self._tasks)]
            of_task = self._groups[name]
            group = of_task[next(words) % len(of_task)]
            of_task.discard(group)
            drawn.append(group)
            aside.setdefault(name, []).append(group)
            if not of_task or len(aside[name]) == self._per_task:
                self._tasks.discard(name)
        for name, of_name in aside.items():
            for group in of_name:
                self.add(group, name)
        return drawn

    def _words(self, version: int) -> Iterator[int]:
        key = mixed(self._key ^ mixed(version & WORD_MASK))
        return (mixed((key + number) & WORD_MASK) for number in count())
