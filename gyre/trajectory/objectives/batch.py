"""A micro-step as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..packing import MicroStep, RowMicroStep, TreeMicroStep


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Batch:
    """T tokens of K sequences, as in `gyre.trajectory.packing.MicroStep`.

    Indices that torch indexes with are int64. Rows have `cu_seqlens`, trees the other three.
    """

    tokens: Tensor  # T, int64
    positions: Tensor  # T, int64
    predictor: Tensor  # T, int64
    loss_mask: Tensor  # T, bool
    loss_weights: Tensor  # T, float32
    mean_weights: Tensor  # T, float32
    logprobs: Tensor  # T, float32
    versions: Tensor  # T, int32
    sequence: Tensor  # T, int64
    sequences: int  # K
    trained_twice: int
    cu_seqlens: Tensor | None = None  # K + 1, int32
    attend_until: Tensor | None = None  # T, int32
    path_start: Tensor | None = None  # K + 1, int64
    path_index: Tensor | None = None  # int64

    @classmethod
    def of(cls, step: MicroStep, device: torch.device | str = "cpu") -> Batch:
        """Copy a micro-step to `device`."""

        def put(values: npt.NDArray[np.generic], dtype: torch.dtype | None = None) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        structure: dict[str, Tensor] = {}
        if isinstance(step, RowMicroStep):
            structure["cu_seqlens"] = put(step.cu_seqlens)
        elif isinstance(step, TreeMicroStep):
            structure["attend_until"] = put(step.attend_until)
            structure["path_start"] = put(step.path_start)
            structure["path_index"] = put(step.path_index, torch.int64)
        return cls(
            tokens=put(step.tokens, torch.int64),
            positions=put(step.positions, torch.int64),
            predictor=put(step.predictor, torch.int64),
            loss_mask=put(step.loss_mask),
            loss_weights=put(step.loss_weights),
            mean_weights=put(step.mean_weights),
            logprobs=put(step.logprobs),
            versions=put(step.versions),
            sequence=put(step.sequence, torch.int64),
            sequences=len(step.rows),
            trained_twice=step.trained_twice,
            **structure,
        )

    def attention_mask(self) -> Tensor:
        """Whether query q sees key k, (T, T) bool, as `scaled_dot_product_attention` takes it: for small T."""
        query = torch.arange(len(self.tokens), device=self.tokens.device)[:, None]
        key = query.T
        if self.attend_until is not None:
            return (key <= query) & (query < self.attend_until[None, :])
        # A row's tokens are those that follow each other by one position.
        start = query - self.positions[:, None]
        return (key <= query) & (start == start.T)
