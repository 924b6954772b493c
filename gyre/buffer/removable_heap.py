"""A heap from which any item can leave, not only the first."""

from __future__ import annotations

import heapq
from typing import Final

Key = tuple[int, ...]

_SLACK: Final = 64  # entries of items that left, kept before they are cleared away


class RemovableHeap:
    """Integers by key, least first; each is there once. Every method is O(log n), amortised.

    An item that leaves from the middle stays in the list until it comes up, or until such are more than half of it.
    """

    def __init__(self) -> None:
        """Make an empty heap."""
        self._heap: list[tuple[Key, int]] = []
        self._keys: dict[int, Key] = {}

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._keys)

    def push(self, item: int, key: Key) -> None:
        """Add an item, or give one that is there another key."""
        if len(self._heap) > 2 * len(self._keys) + _SLACK:
            self._heap = [(kept, each) for each, kept in self._keys.items()]
            heapq.heapify(self._heap)
        self._keys[item] = key
        heapq.heappush(self._heap, (key, item))

    def discard(self, item: int) -> None:
        """Remove an item, if it is there."""
        self._keys.pop(item, None)

    def peek(self) -> int:
        """Return the item of the least key; IndexError where there is none."""
        while self._keys.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][1]

    def first_key(self) -> Key:
        """Return the least key; IndexError where there is none."""
        return self._keys[self.peek()]

    def pop(self) -> int:
        """Remove and return the item of the least key; IndexError where there is none."""
        item = self.peek()
        heapq.heappop(self._heap)
        del self._keys[item]
        return item
