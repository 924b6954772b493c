"""Bin packing by first fit, largest first."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ...arrays import Int32Array, Int64Array, row_starts
from ...compiler import kernel
from ...errors import InputError

MAX_BUDGET: Final = 2**31 - 1
"""Positions inside a micro-step are int32, as attention kernels take them."""


class Bins(NamedTuple):
    """N items in B bins, CSR: bin b holds `items[start[b]:start[b + 1]]`, in rising order."""

    start: Int64Array  # B + 1
    items: Int64Array  # N, indices of the items


def first_fit_decreasing(sizes: Int64Array, budget: int) -> Bins:
    """Pack items of `sizes` (N, 1 or more) into bins of `budget`; an item above the budget has a bin of its own.

    The largest item comes first, the earlier one where two are equal, and each goes into the first bin with room for
    it: O(N log N), and at most 11/9 of the least number of bins, plus 2/3 (Dosa 2007, The tight bound of first fit
    decreasing bin-packing algorithm).

    Raises:
        InputError: the budget is not from 1 to 2**31 - 1.
    """
    if not 1 <= budget <= MAX_BUDGET:
        raise InputError(f"token_budget is {budget}: give a number of tokens from 1 to {MAX_BUDGET}")
    order = np.argsort(-sizes, kind="stable")
    chosen = np.empty(len(sizes), np.int64)
    bins = _first_fit(np.minimum(sizes, budget), order, budget, chosen)
    counts: Int32Array = np.bincount(chosen, minlength=bins).astype(np.int32)
    return Bins(row_starts(counts), np.argsort(chosen, kind="stable"))


@kernel
def _first_fit(sizes: Int64Array, order: Int64Array, budget: int, chosen: Int64Array) -> int:
    """Write the bin of each item to `chosen`; returns the number of bins.

    The bins' free room is kept in a tournament tree, so that the first bin with room is found from its root down.
    """
    width = 1
    while width < len(sizes):
        width *= 2
    room = np.full(2 * width, budget, np.int64)  # node n has children 2n and 2n + 1; bins are the last `width` nodes
    bins = 0
    for item in order:
        node = 1
        while node < width:
            node *= 2
            if room[node] < sizes[item]:
                node += 1
        chosen[item] = node - width
        bins = max(bins, node - width + 1)
        room[node] -= sizes[item]
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return bins
