"""What one forward and backward pass takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import BoolArray, Float32Array, Int32Array, Int64Array


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MicroStep:
    """T tokens that stand for K sequences, each a row of the samples. Entry t speaks of predicting token t."""

    tokens: Int32Array  # T
    positions: Int32Array  # T, tokens before it in its sequence
    predictor: Int32Array  # T, index of the token before it in its sequence: logits there predict it; -1 at the first
    loss_mask: BoolArray  # T
    loss_weights: Float32Array  # T, A_e / (N_e * E), for each sequence that trains the token; 0 outside the mask
    mean_weights: Float32Array  # T, the same without A_e: for terms that the advantage does not scale, such as KL
    logprobs: Float32Array  # T, behaviour policy, 0 outside the mask
    versions: Int32Array  # T, -1 outside the mask or where unknown
    sequence: Int32Array  # T, which of the K sequences trains the token, the first where several do; -1: none
    rows: Int64Array  # K, the sequences' rows in the samples
    row_execution: Int32Array  # K, index into the samples' executions
    trained_twice: int  # trained tokens that a further sequence trains too, once for each such sequence

    def __len__(self) -> int:
        """Number of tokens T."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowMicroStep(MicroStep):
    """Whole sequences side by side, each attending to itself alone."""

    cu_seqlens: Int32Array  # K + 1, where each sequence starts, and T: as FlashAttention's varlen kernels take it

    @property
    def max_seqlen(self) -> int:
        """Tokens of the longest sequence."""
        return int(np.diff(self.cu_seqlens).max(initial=0))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TreeMicroStep(MicroStep):
    """Each token of a prefix that sequences share once, depth first.

    The tokens below token k are those from k + 1 to `attend_until[k]`, so query q sees key k if and only if
    `k <= q < attend_until[k]`. As a FlexAttention mask: `lambda b, h, q, k: (k <= q) & (q < attend_until[k])`.
    """

    attend_until: Int32Array  # T, exclusive
    path_start: Int64Array  # K + 1, CSR into path_index
    path_index: Int32Array  # where each sequence's tokens stand among the T, in their order

    def ancestor_mask(self) -> BoolArray:
        """Whether query q sees key k, (T, T): for small T, and for trainers without FlexAttention."""
        query = np.arange(len(self))[:, None]
        key = np.arange(len(self))[None, :]
        mask: BoolArray = (key <= query) & (query < self.attend_until[None, :])
        return mask
