"""Rows against the token budget of a micro-step."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...arrays import Int64Array
from ...errors import InputError
from ..samples import Samples

Oversize = Literal["refuse", "alone"]
"""What becomes of a row above the budget: an error, or a micro-step of its own."""


def row_lengths(samples: Samples, token_budget: int, oversize: Oversize) -> Int64Array:
    """Tokens of each row, (R,).

    Raises:
        InputError: a row has no token, or more than `token_budget` where `oversize` is "refuse".
    """
    lengths: Int64Array = np.diff(samples.row_start)
    if len(lengths) and lengths.min() < 1:
        row = int(np.argmin(lengths))
        raise InputError(f"{row_name(samples, row)} has no token: leave it out of the samples")
    if oversize == "refuse" and len(lengths) and lengths.max() > token_budget:
        row = int(np.argmax(lengths))
        raise InputError(
            f"{row_name(samples, row)} has {lengths[row]} tokens, above token_budget {token_budget}: raise the budget, "
            'cut paths with Selection.max_tokens, or pack with oversize="alone"'
        )
    return lengths


def row_name(samples: Samples, row: int) -> str:
    """Name a row for an error."""
    return f"row {row} of execution {samples.executions.execution[samples.row_execution[row]]!r}"
