"""What packing saves against a forward pass for each call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from ...arrays import Int64Array
from ...errors import InputError
from ..tree import TreeCalls
from .row_packing import RowPacking
from .tree_packing import TreePacking


@dataclass(frozen=True, slots=True)
class Load:
    """What one forward pass over some tokens takes."""

    sequences: int
    tokens: int
    attention: int  # pairs of a query and a key that it sees, in each head of each layer: the sum of position + 1
    micro_steps: int | None = None  # None: not packed
    filled: float | None = None  # tokens, as a share of the micro-steps' budgets; above 1 where a row exceeds its own

    @classmethod
    def of_lengths(cls, lengths: Int64Array) -> Load:
        """Sequences of `lengths` tokens each, apart from each other."""
        return cls(len(lengths), int(lengths.sum()), int((lengths * (lengths + 1) // 2).sum()))


@dataclass(frozen=True, slots=True)
class Savings:
    """The same training step, from the most tokens to the fewest."""

    token_budget: int
    calls: Load | None  # each call a row of its own: input and output; None where the calls are not known
    selected: Load  # each selected path a row of its own
    rows: Load  # the same, packed
    trees: Load  # packed with shared prefixes once

    def to_json(self) -> dict[str, object]:
        """JSON-ready values."""
        return asdict(self)


def calls_load(calls: Iterable[TreeCalls]) -> Load:
    """Load of one row for each call of some trees, (input + output tokens) each."""
    lengths = [each.input_tokens + each.output_tokens for each in calls]
    return Load.of_lengths(np.concatenate(lengths) if lengths else np.empty(0, np.int64))


def savings(rows: RowPacking, trees: TreePacking, calls: Load | None = None) -> Savings:
    """Compare two packings of the same samples with each other, and with a row for each call (see `calls_load`).

    Raises:
        InputError: the packings are of other samples or of another budget.
    """
    if rows.samples is not trees.samples or rows.token_budget != trees.token_budget:
        raise InputError("savings compares two packings of the same samples: pack both with one token_budget")
    lengths: Int64Array = np.diff(rows.samples.row_start)
    selected = Load.of_lengths(lengths)
    path = lengths[trees.rows]
    attention = path * (path + 1) // 2 - trees.shared * (trees.shared + 1) // 2
    return Savings(
        token_budget=rows.token_budget,
        calls=calls,
        selected=selected,
        rows=_packed(selected.attention, rows),
        trees=_packed(int(attention.sum()), trees),
    )


def _packed(attention: int, packing: RowPacking | TreePacking) -> Load:
    tokens = int(packing.step_tokens.sum())
    room = len(packing) * packing.token_budget
    return Load(len(packing.rows), tokens, attention, len(packing), tokens / room if room else 0.0)
