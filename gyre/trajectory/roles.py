"""What each call of an execution does for it.

A call's label, where the caller gave one, always wins. The others are found from the strands of `strands`, in this
order; a harness's ways are in the table of `harness_rules`, rules 4 and 8 in `summary_rules`:

1. **Main** is the first strand that is not evidently something else: its thread names a parent, a label says so, or it
   is one call of another model, or one call of a harness with side calls where a later strand opens with an input at
   least twice as long.
2. A strand holding a labelled call is of that call's conversation (main or sub-agent), or side.
3. A **named** strand is a sub-agent's: by its parent thread, else for running under another name than main.
4. A **summary** is the last strand of one call (or that call asked again), not ended by a tool call, before the
   conversation that it stands for opens a new window: a strand branched from it, among the next 64, no call of it in
   between. The harness says which can be one: a fresh strand (`fresh`), or a branched one at least three quarters as
   long as the input that it follows (`branch`). So is a strand of one call that branched from a fresh summary (its
   prompt, about another stretch), and in harnesses without sub-agents any fresh strand of one call.
5. **Side**: a fresh strand of one call that another model answered; or, in a harness with side calls, one with less
   than half of the input that opened main, and either an output of at most 64 tokens or a place before main's second
   call.
6. A **branched** strand goes on with its conversation in a new window, unless the strand that it leaves is continued
   later: then it runs beside it and is a sub-agent's. A harness that names threads tells the two apart by name.
7. A **fresh** strand is a sub-agent's; but main's next window where the harness has no sub-agents, where its thread is
   main's, or, the harness being unknown, where no call of main comes later.
8. Within a strand that a new window follows, with less than three quarters of the context that it leaves, the last
   call is a summary if it left its parent before the end of the parent's input and is at least three quarters as long
   (`branch`), or if it appended to the whole history and did not end in a tool call (`append`), and rule 4 found none
   there.

A summary is of its conversation's kind: main's or a sub-agent's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..role import Role
from .call_links import CallLinks
from .harness_rules import HarnessRules, harness_rules
from .strands import Opening, Strand, Strands
from .summary_rules import summaries_at_end, window_after

__all__ = ["CallLinks", "RoleFinding", "find_roles", "label_findings"]

SIDE_INPUT_BELOW: Final = 0.5  # of the input that opened main
SIDE_OUTPUT_TOKENS: Final = 64
MAIN_OVER_SIDE: Final = 2.0  # the first strand is a side call if main opens with this many times its input
LABEL: Final = "label"
SAME_PROMPT: Final = "prompt of an earlier summary"

_SUMMARY_OF: Final = {Role.MAIN: Role.MAIN_SUMMARY, Role.SUB_AGENT: Role.SUB_AGENT_SUMMARY}
_CONVERSATION: Final = {
    Role.MAIN_SUMMARY: Role.MAIN,
    Role.SUB_AGENT_SUMMARY: Role.SUB_AGENT,
}


@dataclass(frozen=True, slots=True)
class RoleFinding:
    """A call's role, and the rule that gave it in a few words."""

    role: Role
    reason: str


def find_roles(links: CallLinks) -> tuple[RoleFinding, ...]:
    """Return the role of each of the C calls, with reasons."""
    by_label = label_findings(links.label)
    return _Execution(links).findings() if by_label is None else by_label


def label_findings(labels: Sequence[Role | None]) -> tuple[RoleFinding, ...] | None:
    """Return the roles that labels give, which needs no links; or None where a label is lacking."""
    given = [label for label in labels if label is not None]
    return tuple(RoleFinding(label, LABEL) for label in given) if len(given) == len(labels) else None


class _Execution:
    """The rules, applied to one execution's strands in the order in which they open."""

    def __init__(self, links: CallLinks) -> None:
        self.links = links
        self.rules: HarnessRules = harness_rules(links.harness)
        self.strands = Strands(links)
        self.main = self._main()
        self.main_last = self._main_last()
        self.conversation: list[Role] = []  # of each strand: main, sub-agent or side
        self.summarises: dict[int, str] = {}  # strands that are a summary, and why
        self.window_with_summary: set[int] = set()  # strands that rule 4 found a summary before

    def findings(self) -> tuple[RoleFinding, ...]:
        """Return what each call was found to be."""
        found: list[RoleFinding | None] = [None] * len(self.links)
        for index, strand in enumerate(self.strands.all):
            role, reason = self._conversation(index, strand)
            self.conversation.append(role)
            if index in self.summarises:
                role = _SUMMARY_OF.get(role, role)
            for row in strand.rows:
                found[row] = RoleFinding(role, reason)
        for row, reason in self._at_end():
            conversation = found[row]
            if conversation is not None and conversation.role in _SUMMARY_OF:
                found[row] = RoleFinding(_SUMMARY_OF[conversation.role], reason)
        for row, label in enumerate(self.links.label):
            if label is not None:
                found[row] = RoleFinding(label, LABEL)
        return tuple(finding for finding in found if finding is not None)

    def _names_parent(self, row: int) -> bool:
        return self.links.parent_thread[row] not in ("", self.links.thread[row])

    def _main(self) -> int:
        """Rule 1; the first strand where none qualifies."""
        longest_later = 0
        is_main = [False] * len(self.strands)
        for index in reversed(range(len(self.strands))):
            strand, row = self.strands[index], self.strands[index].first
            aside = self.strands.single[index] and (
                not self.links.by_policy[row]
                or (self.rules.side_calls and longest_later >= MAIN_OVER_SIDE * self.strands.length[row])
            )
            label = self._label(strand)
            is_main[index] = not (aside or self._names_parent(row)) if label is None else label is Role.MAIN
            longest_later = max(longest_later, self.strands.length[row])
        return is_main.index(True) if True in is_main else 0

    def _main_last(self) -> int:
        """Row of the last call of the strands that come from main's by branching."""
        from_main, last = {self.main}, self.strands[self.main].last
        for index, strand in enumerate(self.strands.all):
            if strand.parent in from_main:
                from_main.add(index)
                last = max(last, strand.last)
        return last

    def _label(self, strand: Strand) -> Role | None:
        labels = (self.links.label[row] for row in strand.rows)
        label = next((label for label in labels if label is not None), None)
        return None if label is None else _CONVERSATION.get(label, label)

    def _conversation(self, index: int, strand: Strand) -> tuple[Role, str]:
        """Rules 2 to 7."""
        label = self._label(strand)
        if label is not None:
            return label, "goes with a labelled call"
        if index == self.main:
            return Role.MAIN, "first context"
        if strand.opening is Opening.NAMED:
            return self._named(index, strand)
        window = window_after(self.strands, self.rules, index)
        if window is not None:
            self.window_with_summary.add(window)
            self.summarises[index] = "history, once, then a new window"
            return self._stands_for(index, window), self.summarises[index]
        if strand.opening is Opening.BRANCHED:
            return self._branched(index, strand)
        return self._fresh(index, strand)

    def _named(self, index: int, strand: Strand) -> tuple[Role, str]:
        if self._names_parent(strand.first):
            return Role.SUB_AGENT, "thread names a parent"
        side = self._side(index, strand)
        return (Role.SIDE, side) if side else (Role.SUB_AGENT, "another thread than main's")

    def _branched(self, index: int, strand: Strand) -> tuple[Role, str]:
        if self.strands.single[index] and self._fresh_summary(strand.parent):
            self.summarises[index] = SAME_PROMPT
            return self.conversation[strand.parent], SAME_PROMPT
        left, thread = self.strands[strand.parent], self.links.thread[strand.first]
        same_thread = thread != "" and thread == self.links.thread[left.first]
        if self.rules.sub_agents and not same_thread and left.last > strand.first:
            return Role.SUB_AGENT, "branched at the preamble, beside the context that it left"
        conversation = self.conversation[strand.parent]
        return (Role.MAIN if conversation is Role.SIDE else conversation), "new window of its conversation"

    def _fresh_summary(self, index: int) -> bool:
        """Whether a strand is a summary that began afresh, or branched from one that did."""
        branched = self.summarises.get(index) == SAME_PROMPT
        return index in self.summarises and (branched or self.strands[index].opening is Opening.FRESH)

    def _fresh(self, index: int, strand: Strand) -> tuple[Role, str]:
        side = self._side(index, strand)
        if side:
            return Role.SIDE, side
        if strand.parent >= 0:
            conversation = self.conversation[strand.parent]
            return (Role.MAIN if conversation is Role.SIDE else conversation), "new window of its thread"
        if not self.rules.sub_agents:
            if self.strands.single[index] and self.rules.summaries:
                self.summarises[index] = "fresh context of one call in a harness without sub-agents"
                return Role.MAIN, self.summarises[index]
            return Role.MAIN, "fresh context in a harness without sub-agents"
        if not self.rules.sequel_is_sub_agent and self.main_last < strand.first:
            return Role.MAIN, "fresh context after main's last call"
        return Role.SUB_AGENT, "fresh context beside main"

    def _side(self, index: int, strand: Strand) -> str:
        """Rule 5: the reason, or nothing."""
        row, main = strand.first, self.strands[self.main]
        if not self.strands.single[index]:
            return ""
        if not self.links.by_policy[row]:
            return "one call of another model"
        if not self.rules.side_calls or self.strands.length[row] >= SIDE_INPUT_BELOW * self.strands.length[main.first]:
            return ""
        before_second = len(main.rows) < 2 or row < main.rows[1]
        short = self.links.output_tokens[row] <= SIDE_OUTPUT_TOKENS
        return "short call of its own" if before_second or short else ""

    def _stands_for(self, index: int, window: int) -> Role:
        left = self.strands[window].parent
        return self.conversation[self.strands[index].parent if left == index else left]

    def _at_end(self) -> Iterator[tuple[int, str]]:
        """Rule 8: rows and reasons."""
        for index, window in enumerate(self.strands.all):
            if window.parent < 0 or index in self.window_with_summary or window.parent in self.summarises:
                continue
            rows, reason = summaries_at_end(self.strands, self.rules, self.strands[window.parent], window)
            yield from ((row, reason) for row in rows)
