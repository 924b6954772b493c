"""What was offered, trained and dropped, by how long a group's longest execution is.

A queue that drops by age drops what took long: the share of offered groups that is trained falls with the length class.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .entry import Entry


@dataclass(slots=True)
class LengthCounts:
    """Groups of one length class. Those offered are trained, dropped, or wait for their first update."""

    offered: int = 0
    trained: int = 0  # by one update or more
    reused: int = 0  # times that a later update used them again
    dropped: Counter[str] = field(default_factory=Counter)  # never trained, by reason

    @property
    def waiting(self) -> int:
        """Groups that neither were trained nor dropped yet."""
        return self.offered - self.trained - self.dropped.total()

    @property
    def trained_share(self) -> float | None:
        """Trained groups over those trained or dropped; None before there is one."""
        ended = self.trained + self.dropped.total()
        return self.trained / ended if ended else None


def length_class(tokens: int) -> int:
    """Return the class of an execution with that many sampled tokens: class c has 2**(c - 1) to 2**c - 1, class 0 none.

    Raises:
        ValueError: `tokens` is negative.
    """
    if tokens < 0:
        raise ValueError(f"{tokens} sampled tokens")
    return tokens.bit_length()


def class_bounds(number: int) -> tuple[int, int]:
    """Return the fewest and the most tokens of a length class."""
    return (1 << number - 1, (1 << number) - 1) if number else (0, 0)


class LengthClasses(dict[int, LengthCounts]):
    """Counts by length class, as far as groups came of it."""

    def __missing__(self, number: int) -> LengthCounts:
        """Make the counts of a class of which the first group comes."""
        return self.setdefault(number, LengthCounts())

    def of(self, tokens: int) -> LengthCounts:
        """Return the counts of the class of an execution with that many sampled tokens."""
        return self[length_class(tokens)]

    def use(self, entry: Entry) -> None:
        """Count an update that used a group, here and in its entry."""
        counts = self.of(entry.longest_tokens)
        if entry.uses:
            counts.reused += 1
        else:
            counts.trained += 1
        entry.uses += 1

    def lose_uses(self, entry: Entry, uses: int) -> None:
        """Take back `uses` of them."""
        counts = self.of(entry.longest_tokens)
        entry.uses -= uses
        counts.trained -= entry.uses == 0
        counts.reused -= uses - (entry.uses == 0)
