"""Parts that the objectives share."""

from __future__ import annotations

import torch
from torch import Tensor

from .batch import Batch
from .metrics import Metrics


def log_ratio(new_logprobs: Tensor, batch: Batch) -> Tensor:
    """log of new over behaviour policy, (T,); 0 outside the mask, whatever stands there."""
    return torch.where(batch.loss_mask, new_logprobs - batch.logprobs, 0.0)


def k3(log_ratio: Tensor) -> Tensor:
    """r - 1 - log r, without cancellation near r = 1."""
    return torch.expm1(log_ratio) - log_ratio


def clipped(ratio: Tensor, weight: Tensor, low: float, high: float) -> Tensor:
    """min(r w, clip(r, 1 - low, 1 + high) w) for each token.

    w is A_e / (N_e * E). The clip is positively homogeneous in the advantage, so to scale it is exact: only w's sign
    chooses a branch.
    """
    return torch.minimum(ratio * weight, ratio.clamp(1.0 - low, 1.0 + high) * weight)


def is_clipped(ratio: Tensor, weight: Tensor, low: float, high: float) -> Tensor:
    """Whether `clipped` takes the branch without gradient."""
    return ((weight > 0) & (ratio > 1.0 + high)) | ((weight < 0) & (ratio < 1.0 - low))


@torch.no_grad()
def measured(
    batch: Batch, ratio: Tensor, token_log_ratio: Tensor, held: Tensor, reference_kl: Tensor | None = None
) -> Metrics:
    """Metrics of one micro-step; all (T,)."""
    mask = batch.loss_mask
    zero = torch.zeros_like(ratio)
    return Metrics(
        tokens=mask.sum(),
        clipped=(held & mask).sum(),
        ratio_sum=torch.where(mask, ratio, zero).sum(),
        kl_sum=torch.where(mask, k3(token_log_ratio), zero).sum(),
        reference_kl_sum=torch.where(mask, zero if reference_kl is None else reference_kl, zero).sum(),
    )
