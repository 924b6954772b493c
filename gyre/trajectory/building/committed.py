"""The calls that stay in the tree, in commit order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ...arrays import BoolArray, FloatArray, Int64Array
from ..call import Finish
from ..check import Reason
from ..tree import Refusal
from .calls import Entry
from .claims import continued
from .radix import CALLS, INPUT_DEPTH, NODES, OUTPUT_DEPTH, Radix
from .spans import Spans, cut

_BROKEN_OFF: Final = (Finish.ABORT, Finish.ERROR)


@dataclass(frozen=True, slots=True, eq=False)
class Committed:
    """C calls in commit order, and the spans that they and the calls that were dropped cut."""

    entries: Sequence[Entry]  # C
    spans: Spans
    input_tokens: Int64Array  # C
    output_tokens: Int64Array  # C

    def first_row(self) -> Int64Array:
        """Return what to add to a depth for the row of a call's output token there in the pools, (C,)."""
        return np.array([entry.sampled_row for entry in self.entries], np.int64) - self.input_tokens

    def by_policy(self) -> BoolArray:
        """Return whether the policy answered, (C,)."""
        return np.array([entry.by_policy for entry in self.entries], np.bool_)

    def times_s(self) -> tuple[FloatArray, FloatArray]:
        """Return starts and ends in seconds, (C,) each."""
        start = np.array([entry.start_s for entry in self.entries], np.float64)
        return start, np.array([entry.end_s for entry in self.entries], np.float64)


def commit(execution: str, entries: Sequence[Entry], radix: Radix) -> tuple[Committed, list[Refusal]]:
    """Put the calls, whose rows in `radix` are in the order in which they came, into commit order; drop some.

    Dropped is a call that broke off and that none goes on from: the engine sampled its output again, or nobody did.
    """
    order = np.argsort(np.array([entry.sequence for entry in entries], np.int64))
    entries = [entries[row] for row in order.tolist()]
    places = radix.places[: radix.used[CALLS]][order]
    spans = cut(radix.nodes[: radix.used[NODES]], places)
    ended = np.array([entry.finish not in _BROKEN_OFF for entry in entries], np.bool_)
    stays = continued(spans.parent, spans.output_span, ended)
    committed = Committed(
        entries=[entry for entry, stay in zip(entries, stays, strict=True) if stay],
        spans=replace(spans, input_span=spans.input_span[stays], output_span=spans.output_span[stays]),
        input_tokens=places[stays, INPUT_DEPTH],
        output_tokens=places[stays, OUTPUT_DEPTH] - places[stays, INPUT_DEPTH],
    )
    return committed, [_dropped(execution, entry) for entry, stay in zip(entries, stays, strict=True) if not stay]


def _dropped(execution: str, entry: Entry) -> Refusal:
    what = f"broken off ({entry.finish}), and no call that ended in order goes on from its output"
    text = f"call {entry.call_id} of execution {execution}: {what}"
    return Refusal(entry.call_id, entry.sequence, Reason.ABORT_WITHOUT_CONTINUATION, text)
