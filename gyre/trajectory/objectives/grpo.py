"""GRPO's objective."""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from ...errors import InputError
from .batch import Batch
from .metrics import Metrics
from .surrogate import clipped, is_clipped, k3, log_ratio, measured


class GrpoSettings(BaseModel):
    """The clip range [1 - clip_low, 1 + clip_high], and the weight of the KL term."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    clip_low: float = Field(default=0.2, ge=0, le=1, description="how far the ratio may fall below 1")
    clip_high: float = Field(default=0.2, ge=0, description="how far the ratio may rise above 1")
    kl_weight: float = Field(default=0.0, ge=0, description="beta, of the KL divergence from the reference policy")


def grpo_loss(
    new_logprobs: Tensor,
    batch: Batch,
    settings: GrpoSettings | None = None,
    *,
    reference_logprobs: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """Minus the mean over executions of the mean over their trained tokens of (clipped surrogate - beta KL).

    Shao et al. 2024, arXiv:2402.03300, eqs. 3 and 4; an execution's trained tokens stand for the paper's output o_i.
    KL is q - 1 - log q with q = reference / new, weighted 1 / (N_e * E) without the advantage (`Batch.mean_weights`).
    The advantage is made with the samples: `Baseline.MEAN_STD` is the paper's.

    Others differ as follows. Dr. GRPO (Liu et al. 2025, arXiv:2503.20783): `Baseline.MEAN`, no KL, and a constant in
    place of N_e. DAPO (Yu et al. 2025, arXiv:2503.14476): clip_high 0.28, no KL, one mean over all tokens of a batch,
    and groups with equal scores drawn again.

    Args:
        new_logprobs: (T,) of the policy that is trained, with gradient; read inside the mask only.
        batch: the micro-step. Losses of a step's micro-steps add up to its loss.
        settings: left out, a clip of 0.2 and no KL term.
        reference_logprobs: (T,) of the reference policy, without gradient; needed where `kl_weight` is not 0.

    Raises:
        InputError: `kl_weight` is set and there are no `reference_logprobs`.
    """
    settings = settings or GrpoSettings()
    weight = batch.loss_weights
    logs = log_ratio(new_logprobs, batch)
    ratio = logs.exp()
    loss = -clipped(ratio, weight, settings.clip_low, settings.clip_high).sum()
    divergence = None
    if reference_logprobs is not None:
        divergence = k3(torch.where(batch.loss_mask, reference_logprobs - new_logprobs, 0.0))
        if settings.kl_weight:
            loss = loss + settings.kl_weight * (batch.mean_weights * divergence).sum()
    elif settings.kl_weight:
        raise InputError("kl_weight needs reference_logprobs: give them, or set kl_weight to 0")
    held = is_clipped(ratio, weight, settings.clip_low, settings.clip_high)
    return loss, measured(batch, ratio, logs, held, divergence)
