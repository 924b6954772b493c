"""Which calls summarise a conversation's history for its next window: rules 4 and 8 of `roles`."""

from __future__ import annotations

from typing import Final

from .harness_rules import HarnessRules, SummaryShape
from .strands import Opening, Strand, Strands

NEARLY_ALL: Final = 0.75  # of the input before it, in a summary that branches
SHORTENED: Final = 0.75  # of the context left, in the window after a summary within a strand
WINDOW_WITHIN: Final = 64  # strands after a summary, sub-agents' among them


def window_after(strands: Strands, rules: HarnessRules, index: int) -> int | None:
    """Rule 4: return the strand that opens after the summary that strand `index` is; None where it is no summary."""
    if not _could_summarise(strands, rules, index):
        return None
    strand = strands[index]
    for later in range(index + 1, min(len(strands), index + 1 + WINDOW_WITHIN)):
        window = strands[later]
        left = window.parent if window.parent != index else strand.parent
        if window.opening is Opening.BRANCHED and 0 <= left < index and strands[left].last < strand.first:
            rivals = range(index + 1, later)
            return None if any(_could_summarise(strands, rules, rival) for rival in rivals) else later
    return None


def _could_summarise(strands: Strands, rules: HarnessRules, index: int) -> bool:
    strand, links = strands[index], strands.links
    if not (strands.single[index] and links.by_policy[strand.first]) or strands.called_tool(strand):
        return False
    if strand.opening is Opening.FRESH:
        return SummaryShape.FRESH in rules.summaries
    before = links.parent[strand.first]
    long_enough = before >= 0 and strands.length[strand.first] >= NEARLY_ALL * strands.length[before]
    return strand.opening is Opening.BRANCHED and SummaryShape.BRANCH in rules.summaries and long_enough


def summaries_at_end(strands: Strands, rules: HarnessRules, left: Strand, window: Strand) -> tuple[list[int], str]:
    """Rule 8: return the rows of the summary with which `left` ends before `window` opens, and the reason."""
    rows, links, length = strands.asked_last(left), strands.links, strands.length
    row, parent = rows[0], int(links.parent[rows[0]])
    shortened = length[window.first] < SHORTENED * strands.context[left.last]
    if left.last > window.first or row == left.first or parent < 0 or not shortened:
        return [], ""
    if links.shared_tokens[row] < length[parent]:
        branch = SummaryShape.BRANCH in rules.summaries and length[row] >= NEARLY_ALL * length[parent]
        return (rows, "left nearly the whole history, then a new window") if branch else ([], "")
    append = SummaryShape.APPEND in rules.summaries and not strands.called_tool(left)
    return (rows, "last call on the whole history, then a new window") if append else ([], "")
