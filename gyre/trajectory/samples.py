"""Training samples: the selected paths of a step's executions, with masks and loss weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import BoolArray, Float32Array, FloatArray, Int8Array, Int32Array, Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class PathRows:
    """R selected paths of one execution, expanded: T tokens in CSR rows, in the order of selection.

    Entry t of a row speaks of predicting its token t from the tokens before it; token 0 has no predictor and is never
    in the mask.
    """

    row_start: Int64Array  # R + 1
    leaf: Int32Array  # R, index into the tree's leaves
    tokens: Int32Array  # T
    loss_mask: BoolArray  # T, trained here: sampled, and no earlier row has it
    logprobs: Float32Array  # T, 0 outside the mask
    versions: Int32Array  # T, -1 outside the mask or where unknown
    edges: Int64Array  # T, index of the token in the tree: two rows share a token at a prefix where these are equal


@dataclass(frozen=True, slots=True, eq=False)
class SampleExecutions:
    """The executions behind samples, E rows. Those that were dropped have no rows and are listed apart."""

    execution: tuple[str, ...]
    group: tuple[str, ...]
    score: FloatArray
    advantage: FloatArray
    trained_tokens: Int64Array  # N_e, 0 where nothing of it is trained: then it is not counted in E
    token_weight: FloatArray  # advantage / (N_e * E), of each of its trained tokens; 0 where N_e is 0


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """R rows of several executions, T tokens. The loss is minus the sum over tokens of weight times objective."""

    row_start: Int64Array  # R + 1
    row_execution: Int32Array  # R, index into executions
    row_role: Int8Array  # R, index into list(Role), of the path's leaf
    tokens: Int32Array  # T
    loss_mask: BoolArray  # T
    logprobs: Float32Array  # T, 0 outside the mask
    versions: Int32Array  # T, -1 outside the mask
    edges: Int64Array  # T, index of the token in its execution's tree
    executions: SampleExecutions
    dropped: dict[str, str]  # execution to reason, of those that are not trained

    @property
    def rows(self) -> int:
        """R."""
        return len(self.row_execution)

    def row(self, index: int) -> slice:
        """Return where row `index` stands in the arrays of tokens."""
        return slice(int(self.row_start[index]), int(self.row_start[index + 1]))

    def positions(self) -> Int32Array:
        """Return each token's position in its row, (T,)."""
        lengths = np.diff(self.row_start)
        return (np.arange(len(self.tokens)) - np.repeat(self.row_start[:-1], lengths)).astype(np.int32)

    def loss_weights(self) -> FloatArray:
        """Return A_e / (N_e * E) for each token in the mask and 0 for the others, (T,)."""
        per_row = self.executions.token_weight[self.row_execution]
        return np.repeat(per_row, np.diff(self.row_start)) * self.loss_mask
