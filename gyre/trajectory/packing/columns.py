"""Columns of samples for a few of their rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import BoolArray, Float32Array, FloatArray, Int32Array, Int64Array, row_starts
from ..samples import Samples


class RowColumns(NamedTuple):
    """K rows side by side, P tokens."""

    start: Int64Array  # K + 1, CSR
    lengths: Int64Array  # K
    execution: Int32Array  # K
    weight: FloatArray  # K, A_e / (N_e * E) of each of the row's trained tokens
    mean_weight: FloatArray  # K, 1 / (N_e * E)
    tokens: Int32Array  # P
    loss_mask: BoolArray  # P
    logprobs: Float32Array  # P
    versions: Int32Array  # P


def row_columns(samples: Samples, rows: Int64Array) -> RowColumns:
    """Copy `rows` (K, 1 or more) of `samples`."""
    places = [samples.row(row) for row in rows]
    lengths = samples.row_start[rows + 1] - samples.row_start[rows]
    execution = samples.row_execution[rows]
    return RowColumns(
        start=row_starts(lengths),
        lengths=lengths,
        execution=execution,
        weight=samples.executions.token_weight[execution],
        mean_weight=samples.executions.mean_weight[execution],
        tokens=np.concatenate([samples.tokens[place] for place in places]),
        loss_mask=np.concatenate([samples.loss_mask[place] for place in places]),
        logprobs=np.concatenate([samples.logprobs[place] for place in places]),
        versions=np.concatenate([samples.versions[place] for place in places]),
    )
