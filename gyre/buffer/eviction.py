"""Which waiting group leaves a full buffer."""

from __future__ import annotations

from .entry import Entry
from .removable_heap import Key, RemovableHeap
from .settings import BufferSettings, Evict


class Eviction:
    """Counts what waits against the capacity, and orders it by who leaves first."""

    def __init__(self, settings: BufferSettings) -> None:
        """Begin with nothing."""
        self._settings = settings
        self._limited = settings.capacity_groups is not None or settings.capacity_bytes is not None
        self._order = RemovableHeap()
        self._size = 0  # bytes

    def add(self, entry: Entry, arrived: int) -> None:
        """Count a group that waits, the `arrived`-th that became ready."""
        if self._limited:
            self._order.push(entry.group, _rank(entry, arrived, self._settings.evict))
            self._size += entry.size

    def discard(self, entry: Entry) -> None:
        """Count off a group."""
        if self._limited:
            self._order.discard(entry.group)
            self._size -= entry.size

    def may_fit(self, entry: Entry) -> bool:
        """Whether an empty buffer would hold a group."""
        return self._settings.capacity_bytes is None or entry.size <= self._settings.capacity_bytes

    def victim(self) -> int | None:
        """Return the group that is to leave now; None where all have room."""
        groups, size = self._settings.capacity_groups, self._settings.capacity_bytes
        full = (groups is not None and len(self._order) > groups) or (size is not None and self._size > size)
        return self._order.peek() if full else None


def _rank(entry: Entry, arrived: int, evict: Evict) -> Key:
    """Return the key by which groups leave, least first; ties go to the oldest."""
    match evict:
        case Evict.OLDEST:
            return (entry.version, arrived)
        case Evict.NEWEST:
            return (-entry.version, -arrived)
        case Evict.MOST_USED:
            return (-entry.uses, entry.version, arrived)
        case Evict.LARGEST:
            return (-entry.size, entry.version, arrived)
