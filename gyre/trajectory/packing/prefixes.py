"""Rows of an execution as a tree: which leading tokens they share, and where each token stands depth first."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ...arrays import Int32Array, Int64Array
from ...compiler import kernel

NO_FAULT: Final = -1


class Structure(NamedTuple):
    """The T tokens of a micro-step as a tree; P tokens of its rows, expanded."""

    source: Int64Array  # T, a place among the P where the token stands
    positions: Int32Array  # T
    predictor: Int32Array  # T
    attend_until: Int32Array  # T
    path_index: Int32Array  # P


@kernel
def shared_prefixes(
    rows: Int64Array,
    step_start: Int64Array,
    row_start: Int64Array,
    row_execution: Int32Array,
    edges: Int64Array,
    shared: Int64Array,
) -> int:
    """Write to `shared` how many leading tokens each of `rows` has in common with the one before it in its micro-step.

    The rows of an execution stand by their last edge. Edges are numbered depth first, so the row before is then the one
    that shares most; where they are not, the number of a row at fault is returned, else NO_FAULT.
    """
    for step in range(len(step_start) - 1):
        for k in range(step_start[step], step_start[step + 1]):
            row = rows[k]
            begin, end = row_start[row], row_start[row + 1]
            for t in range(begin + 1, end):
                if edges[t] <= edges[t - 1]:
                    return int(row)
            shared[k] = 0
            if k == step_start[step] or row_execution[rows[k - 1]] != row_execution[row]:
                continue
            other, other_end = row_start[rows[k - 1]], row_start[rows[k - 1] + 1]
            common, most = 0, min(end - begin, other_end - other)
            while common < most and edges[begin + common] == edges[other + common]:
                common += 1
            if common < end - begin and edges[begin + common] <= edges[other_end - 1]:
                return int(row)
            shared[k] = common
    return NO_FAULT


@kernel
def cut(lengths: Int64Array, execution: Int32Array, shared: Int64Array, budget: int, across: bool) -> Int64Array:
    """Cut rows, depth first, into parts whose trees have at most `budget` tokens together.

    Each part takes rows as long as they fit: those of one execution, or, if `across`, of any that follow. A row above
    the budget is a part of its own. Returns the parts' CSR offsets into the rows.
    """
    start = np.empty(len(lengths) + 1, np.int64)
    parts, size = 0, 0
    for k in range(len(lengths)):
        grown = size + lengths[k] - shared[k]
        if k > 0 and grown <= budget and (across or execution[k] == execution[k - 1]):
            size = grown
            continue
        start[parts] = k
        parts += 1
        size = lengths[k]
    start[parts] = len(lengths)
    return start[: parts + 1].copy()


@kernel
def walk(path_start: Int64Array, shared: Int64Array, tokens: int) -> Structure:
    """Lay out the rows of one micro-step, depth first.

    Args:
        path_start: CSR offsets of the rows' P tokens, (K + 1,).
        shared: leading tokens that each row has in common with the one before, (K,).
        tokens: T.
    """
    source = np.empty(tokens, np.int64)
    positions = np.empty(tokens, np.int32)
    predictor = np.empty(tokens, np.int32)
    attend_until = np.full(tokens, tokens, np.int32)  # what nothing closes below is open to the end
    path_index = np.empty(path_start[-1], np.int32)
    written = 0
    for k in range(len(shared)):
        low = path_start[k]
        if k > 0:  # the branch that this row leaves ends here
            before = path_start[k - 1]
            path_index[low : low + shared[k]] = path_index[before : before + shared[k]]
            for place in range(before + shared[k], low):
                attend_until[path_index[place]] = written
        for depth in range(shared[k], path_start[k + 1] - low):
            source[written] = low + depth
            positions[written] = depth
            predictor[written] = path_index[low + depth - 1] if depth > 0 else -1
            path_index[low + depth] = written
            written += 1
    return Structure(source, positions, predictor, attend_until, path_index)
