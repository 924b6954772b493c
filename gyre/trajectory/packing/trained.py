"""What a tree-packed micro-step trains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import BoolArray, Float32Array, FloatArray, Int32Array, Int64Array
from ...compiler import kernel


class Trained(NamedTuple):
    """T tokens; fields as in `MicroStep`, weights in double precision while they are added up."""

    loss_mask: BoolArray
    loss_weights: FloatArray
    mean_weights: FloatArray
    logprobs: Float32Array
    versions: Int32Array
    sequence: Int32Array

    @classmethod
    def nothing(cls, tokens: int) -> Trained:
        """Context alone."""
        return cls(
            np.zeros(tokens, np.bool_),
            np.zeros(tokens),
            np.zeros(tokens),
            np.zeros(tokens, np.float32),
            np.full(tokens, -1, np.int32),
            np.full(tokens, -1, np.int32),
        )


@kernel
def train(
    path_start: Int64Array,
    path_index: Int32Array,
    sources: tuple[BoolArray, Float32Array, Int32Array],
    weights: tuple[FloatArray, FloatArray],
    trained: Trained,
) -> int:
    """Write what the rows of a micro-step train to `trained`; weights of one token add up.

    Args:
        path_start: CSR offsets of K rows, (K + 1,).
        path_index: where each of their P tokens stands among the T.
        sources: loss mask, log-probabilities and versions of the rows' tokens, (P,) each.
        weights: of each row's trained tokens, with the advantage and without, (K,) each.
        trained: T tokens of context, written to.

    Returns:
        How often a token is trained beyond the first time.
    """
    mask, logprobs, versions = sources
    weight, mean_weight = weights
    twice = 0
    for row in range(len(weight)):
        for place in range(path_start[row], path_start[row + 1]):
            if not mask[place]:
                continue
            at = path_index[place]
            trained.loss_weights[at] += weight[row]
            trained.mean_weights[at] += mean_weight[row]
            if trained.loss_mask[at]:
                twice += 1
                continue
            trained.loss_mask[at] = True
            trained.logprobs[at] = logprobs[place]
            trained.versions[at] = versions[place]
            trained.sequence[at] = row
    return twice
