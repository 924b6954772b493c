"""PPO's clipped objective, token by token."""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from .batch import Batch
from .metrics import Metrics
from .surrogate import clipped, is_clipped, log_ratio, measured


class PpoSettings(BaseModel):
    """Range of the ratio that is not clipped, [1 - clip_low, 1 + clip_high]."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    clip_low: float = Field(default=0.2, ge=0, le=1, description="how far the ratio may fall below 1")
    clip_high: float = Field(default=0.2, ge=0, description="how far the ratio may rise above 1")
    dual_clip: float | None = Field(
        default=None, gt=1, description="least objective at a negative advantage A, as a multiple of A; left out: none"
    )


def ppo_loss(new_logprobs: Tensor, batch: Batch, settings: PpoSettings | None = None) -> tuple[Tensor, Metrics]:
    """Minus the sum over trained tokens of min(r w, clip(r, 1 - low, 1 + high) w), r the ratio new / behaviour.

    Schulman et al. 2017, arXiv:1707.06347, eq. 7, with the advantage inside w = A_e / (N_e * E). With `dual_clip` c,
    where w < 0: max(that, c w), Ye et al. 2020, arXiv:1912.09729.

    Args:
        new_logprobs: (T,) of the policy that is trained, with gradient; read inside the mask only.
        batch: the micro-step. Losses of a step's micro-steps add up to its loss.
        settings: left out, PPO's usual ones.
    """
    settings = settings or PpoSettings()
    weight = batch.loss_weights
    logs = log_ratio(new_logprobs, batch)
    ratio = logs.exp()
    objective = clipped(ratio, weight, settings.clip_low, settings.clip_high)
    held = is_clipped(ratio, weight, settings.clip_low, settings.clip_high)
    if settings.dual_clip is not None:
        least = settings.dual_clip * weight
        objective = torch.where(weight < 0, torch.maximum(objective, least), objective)
        held |= (weight < 0) & (ratio > settings.dual_clip)
    return -objective.sum(), measured(batch, ratio, logs, held)
