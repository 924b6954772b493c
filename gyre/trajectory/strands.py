"""An execution's calls as strands: runs of calls that each go on from one another's context.

A call joins the strand of its parent, or opens a new one:
- *fresh*: it shares no token with an earlier call, or less than half of the input that opened the parent's strand;
- *named*: the harness gives it a thread that no earlier call had;
- *branched*: it leaves its parent before the end of the parent's input, and at or before the end of the input that
  opened the strand, so that no turn of the strand is kept in place; or its thread has earlier calls but the parent is
  of another thread.
It joins where it appends to the parent, where the parent's output came back re-written (drift), where a later part of
the history was edited, and where its whole input stands in the parent's context (asked again).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from .call import Finish
from .call_links import CallLinks

FRESH_BELOW: Final = 0.5  # share of the input that opened a strand


class Opening(StrEnum):
    """How a strand begins."""

    FRESH = "fresh"
    NAMED = "named"
    BRANCHED = "branched"


@dataclass(slots=True)
class Strand:
    """A strand: its calls by row, in commit order."""

    opening: Opening
    parent: int  # strand that a branched one leaves, latest strand of the same thread for a fresh one; -1: none
    rows: list[int] = field(default_factory=list)

    @property
    def first(self) -> int:
        """Row of the call that opens it."""
        return self.rows[0]

    @property
    def last(self) -> int:
        """Row of its last call."""
        return self.rows[-1]


def cut(links: CallLinks) -> list[Strand]:
    """Return the strands of an execution by the row of their first call. Every call is in exactly one."""
    found: list[Strand] = []
    strand_of: list[int] = []
    strand_of_thread: dict[str, int] = {}  # the latest strand of each named thread
    parents, shared, length = links.parent.tolist(), links.shared_tokens.tolist(), links.input_tokens.tolist()
    for row, thread in enumerate(links.thread):
        parent = parents[row]
        known = strand_of_thread.get(thread, -1) if thread else -1
        elsewhere = known >= 0 and (parent < 0 or links.thread[parent] != thread)
        left = known if elsewhere or parent < 0 else strand_of[parent]
        opened_with = length[found[left].first] if left >= 0 else 0
        opening: Opening | None = None
        if thread and known < 0:
            opening, left = Opening.NAMED, -1
        elif parent < 0 or shared[row] < FRESH_BELOW * opened_with:
            opening, left = Opening.FRESH, known
        elif elsewhere or shared[row] < min(length[parent], length[row], opened_with + 1):
            opening = Opening.BRANCHED
        if opening is not None:
            found.append(Strand(opening, left))
            left = len(found) - 1
        found[left].rows.append(row)
        strand_of.append(left)
        if thread:
            strand_of_thread[thread] = left
    return found


class Strands:
    """The strands of an execution, with what the rules ask of them."""

    def __init__(self, links: CallLinks) -> None:
        self.links = links
        self.length: list[int] = links.input_tokens.tolist()  # of each call's input
        self.context: list[int] = (links.input_tokens + links.output_tokens).tolist()
        self.all: list[Strand] = cut(links)
        self.single = [self._asks_once(strand) for strand in self.all]  # of one call, or one call asked again

    def __len__(self) -> int:
        """Number of strands."""
        return len(self.all)

    def __getitem__(self, index: int) -> Strand:
        """Return the strand that opened as number `index`."""
        return self.all[index]

    def _asks_once(self, strand: Strand) -> bool:
        return all(self.length[row] == self.length[strand.first] for row in strand.rows)

    def called_tool(self, strand: Strand) -> bool:
        """Whether the strand's last call ended in a tool call."""
        return self.links.finish[strand.last] is Finish.TOOL_CALLS

    def asked_last(self, strand: Strand) -> list[int]:
        """Return the row of the strand's last call, and before it those of the same asked just before."""
        last = self.length[strand.last]
        others = (number for number, row in enumerate(reversed(strand.rows)) if self.length[row] != last)
        return strand.rows[-next(others, len(strand.rows)) :]
