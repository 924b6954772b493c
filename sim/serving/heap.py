"""Binary heaps of records (key, order, item), least (key, order) first. The caller keeps the size."""

from __future__ import annotations

from typing import Any

from .compiler import inner_kernel
from .state import Records


@inner_kernel
def _before(key: Any, order: int, other: Any) -> bool:
    return bool(key < other.key or (key == other.key and order < other.order))


@inner_kernel
def _sift_up(heap: Records, hole: int, key: Any, order: int, item: int) -> None:
    while hole > 0:
        parent = (hole - 1) >> 1
        if not _before(key, order, heap[parent]):
            break
        heap[hole] = heap[parent]
        hole = parent
    heap[hole].key = key
    heap[hole].order = order
    heap[hole].item = item


@inner_kernel
def push(heap: Records, size: int, key: Any, order: int, item: int) -> None:
    """Add an item to a heap of `size` items."""
    _sift_up(heap, size, key, order, item)


@inner_kernel
def remove(heap: Records, size: int, index: int) -> None:
    """Remove the item at `index` (0: the least) from a heap of `size` items."""
    last = size - 1
    key, order, item = heap[last].key, heap[last].order, heap[last].item
    hole = index
    child = 2 * hole + 1
    while child < last:
        if child + 1 < last and _before(heap[child + 1].key, heap[child + 1].order, heap[child]):
            child += 1
        heap[hole] = heap[child]
        hole = child
        child = 2 * hole + 1
    _sift_up(heap, hole, key, order, item)


@inner_kernel
def find(heap: Records, size: int, item: int) -> int:
    """Index of an item in a heap of `size` items, -1 if absent."""
    for index in range(size):
        if heap[index].item == item:
            return index
    return -1
