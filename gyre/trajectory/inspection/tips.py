"""What the drawing says of what the pointer is at, as plain text."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..call import Finish
from .drops import Drop
from .strips import FATE_WORDS, Fate, Strips
from .text import short_id, span_words
from .token_text import TokenText, printable
from .view import TreeView

_FINISHES: Final = tuple(Finish)
_MOST_IN_FULL: Final = 3_000  # strips: few pixels wide beyond, and a page should stay small


def strip_tips(view: TreeView, parts: Strips, token_text: TokenText) -> list[str]:
    """Return a few lines for each strip; of very many, only the longest have more than one."""
    in_full = set(np.argsort(-parts.length, kind="stable")[:_MOST_IN_FULL].tolist())
    return [
        _strip_tip(view, parts, strip, token_text) if strip in in_full else _first_line(view, parts, strip)
        for strip in range(len(parts.node))
    ]


def _first_line(view: TreeView, parts: Strips, strip: int) -> str:
    node, fate, begins = int(parts.node[strip]), Fate(int(parts.fate[strip])), int(parts.begins_at[strip])
    length = int(parts.length[strip])
    words = f"{view.role_word(int(view.node_role[node]))} · {FATE_WORDS[fate]}"
    return f"{words} · {_tokens(length)}, {begins:,} – {begins + length:,} of the path"


def _tokens(count: int) -> str:
    return f"{count:,} token{'s' * (count != 1)}"


def _strip_tip(view: TreeView, parts: Strips, strip: int, token_text: TokenText) -> str:
    tree, node, fate = view.tree, int(parts.node[strip]), Fate(int(parts.fate[strip]))
    first, length = int(parts.first[strip]), int(parts.length[strip])
    lines = [_first_line(view, parts, strip)]
    call = int(view.node_call[node])
    if call >= 0:
        lines.append(("sampled by " if fate is not Fate.CONTEXT else "first read by ") + call_words(view, call))
        lines.append(f"role from: {printable(tree.calls.role_reason[call])}")
    if fate is not Fate.CONTEXT:
        start = int(tree.sampled_start[node]) + first - int(tree.node_start[node])
        logprobs, versions = tree.logprobs[start : start + length], tree.versions[start : start + length]
        known = versions[versions >= 0]
        of = f" · {span_words((int(known.min()), int(known.max())))}" if len(known) else ""
        lines.append(f"mean log-probability {logprobs.mean():.3f}{of}")
    lines.append(token_text(tree.tokens[first : first + length]))
    return "\n".join(lines)


def call_words(view: TreeView, call: int) -> str:
    """Return which call it is and how it ended."""
    calls = view.tree.calls
    thread = f", thread {short_id(calls.thread[call])}" if calls.thread[call] else ""
    model = f", model {short_id(calls.model[call])}" if calls.model[call] else ""
    finish = _FINISHES[calls.finish[call]].value.replace("_", " ")
    return f"{short_id(calls.call_id[call])}{thread}{model}, ended by {finish}"


def drop_tip(view: TreeView, drop: Drop) -> str:
    """Return what was left behind, and what came in its place."""
    ids = view.tree.calls.call_id
    carried = f", {drop.carried:,} of them come back word for word" if drop.carried else ""
    return (
        f"{drop.kind.value} between {short_id(ids[drop.earlier])} and {short_id(ids[drop.later])}\n"
        f"{drop.shared:,} tokens stay as prefix; {drop.dropped + drop.carried:,} leave it{carried}\n"
        f"{drop.added:,} tokens stand in their place"
    )
