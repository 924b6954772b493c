"""What of the groups' files is in memory too."""

from __future__ import annotations


class GroupMemory:
    """The content of some groups' files, up to a number of bytes.

    Who came first stays: steps take, as a rule, the oldest groups first, so what comes when all is full is needed last.
    """

    def __init__(self, limit: int) -> None:
        """Hold at most `limit` bytes."""
        self._limit = limit
        self._contents: dict[int, list[bytes]] = {}
        self.size = 0  # bytes

    def add(self, group: int, frames: bytes, before: int) -> None:
        """Keep what was added to a group's file of `before` bytes, if there is room and all before is here too."""
        held = self._contents.get(group)
        if self.size + len(frames) > self._limit or (before > 0 and held is None):
            self.discard(group)
            return
        self._contents.setdefault(group, []).append(frames)
        self.size += len(frames)

    def get(self, group: int) -> bytes | None:
        """Return the content of a group's file; None where it is on disk only."""
        held = self._contents.get(group)
        if held is None:
            return None
        if len(held) > 1:
            held[:] = [b"".join(held)]
        return held[0]

    def discard(self, group: int) -> None:
        """Keep a group no longer."""
        self.size -= sum(map(len, self._contents.pop(group, ())))
