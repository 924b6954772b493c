"""Rows of samples in micro-steps of a token budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...arrays import Int64Array, row_sums
from ..samples import Samples
from .bins import first_fit_decreasing
from .budget import Oversize, row_lengths
from .columns import row_columns
from .micro_step import RowMicroStep


@dataclass(frozen=True, slots=True, eq=False)
class RowPacking:
    """R rows in B micro-steps. Their arrays are made when asked for, one micro-step at a time."""

    samples: Samples
    token_budget: int
    step_start: Int64Array  # B + 1, CSR into rows
    rows: Int64Array  # R, rows of the samples
    step_tokens: Int64Array  # B

    def __len__(self) -> int:
        """Number of micro-steps B."""
        return len(self.step_tokens)

    def __iter__(self) -> Iterator[RowMicroStep]:
        """Make one micro-step after the other."""
        return (self.micro_step(index) for index in range(len(self)))

    def micro_step(self, index: int) -> RowMicroStep:
        """Make the arrays of micro-step `index`, from 0 to B - 1."""
        rows = self.rows[self.step_start[index] : self.step_start[index + 1]]
        columns = row_columns(self.samples, rows)
        at = np.arange(len(columns.tokens), dtype=np.int32)
        positions = at - np.repeat(columns.start[:-1].astype(np.int32), columns.lengths)
        predictor = at - np.int32(1)
        predictor[columns.start[:-1]] = -1
        sequence = np.repeat(np.arange(len(rows), dtype=np.int32), columns.lengths)
        return RowMicroStep(
            tokens=columns.tokens,
            positions=positions,
            predictor=predictor,
            loss_mask=columns.loss_mask,
            loss_weights=np.repeat(columns.weight.astype(np.float32), columns.lengths) * columns.loss_mask,
            mean_weights=np.repeat(columns.mean_weight.astype(np.float32), columns.lengths) * columns.loss_mask,
            logprobs=columns.logprobs,
            versions=columns.versions,
            sequence=np.where(columns.loss_mask, sequence, np.int32(-1)),
            rows=rows,
            row_execution=columns.execution,
            trained_twice=0,
            cu_seqlens=columns.start.astype(np.int32),
        )


def pack_rows(samples: Samples, token_budget: int, *, oversize: Oversize = "refuse") -> RowPacking:
    """Pack the R rows of `samples` into micro-steps of at most `token_budget` tokens: first fit, longest row first.

    The same samples and budget give the same micro-steps. O(R log R): tokens are not touched before a micro-step is
    asked for.

    Args:
        samples: rows of one or more tokens.
        token_budget: most tokens of a micro-step, 1 to 2**31 - 1.
        oversize: what becomes of a row above the budget: "refuse", or "alone" in a micro-step of its own.

    Raises:
        InputError: the budget is out of range, a row has no token, or one is above the budget and `oversize` is
            "refuse".
    """
    lengths = row_lengths(samples, token_budget, oversize)
    bins = first_fit_decreasing(lengths, token_budget)
    return RowPacking(samples, token_budget, bins.start, bins.items, row_sums(lengths[bins.items], bins.start))
