"""GSPO's objective of whole sequences, as published and as QwenGyre uses it."""

from __future__ import annotations

from typing import Final

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from ...errors import InputError
from .batch import Batch
from .metrics import Metrics
from .surrogate import clipped, is_clipped, log_ratio, measured


class GspoSettings(BaseModel):
    """The clip range [1 - clip_low, 1 + clip_high] of a sequence's ratio; as published where left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    clip_low: float = Field(default=3e-4, ge=0, le=1, description="how far a sequence's ratio may fall below 1")
    clip_high: float = Field(default=4e-4, ge=0, description="how far a sequence's ratio may rise above 1")
    token_cap: float | None = Field(
        default=None, gt=0, description="cap of each token's importance weight; left out: the sequence's ratio for all"
    )


QWENGYRE: Final = GspoSettings(clip_low=0.005, clip_high=0.005, token_cap=5.0)
"""QwenGyre's variant: token importance weights capped at 5, sequence clip [0.995, 1.005]."""


def gspo_loss(new_logprobs: Tensor, batch: Batch, settings: GspoSettings | None = None) -> tuple[Tensor, Metrics]:
    """Minus the sum over trained tokens t of k_t min(s_t w_t, clip(s_t, 1 - low, 1 + high) w_t).

    A sequence is one row's trained tokens; l_t is a token's log-probability, r_t = exp(l_t - behaviour), and

        s   = exp(mean over the sequence of log r_t)      the sequence's ratio
        s_t = sg[s] exp(l_t - sg[l_t])                    its value s, its gradient s times that of l_t
        w_t = A_e / (N_e * E),    sg[] stops gradients.

    As published k_t is 1: Zheng et al. 2025, arXiv:2507.18071, GSPO-token (eqs. 13 and 14), which equals GSPO (eqs. 5
    and 7) in value and gradient, since a sequence has one advantage; the clip ranges are those of its section 5.1. What
    differs is the mean: in an execution, sequences weigh by their trained tokens, where the paper has one sequence.

    With `token_cap` C, k_t = sg[min(r_t, C) / s]. QwenGyre's text gives the cap of the token importance weights (5) and
    the clip of the sequence ratio, but no formula; this is our reading of it. Where the sequence is inside the clip, a
    token's gradient is min(r_t, C) w_t times that of l_t: importance sampling, truncated; where the clip holds the
    sequence, it is 0 for all its tokens. Where all r_t of a sequence are equal and below C it is published GSPO.
    The other reading, truncated weights between the behaviour policy and a proximal one, is
    `gspo_loss(new, decoupled(batch, proximal, cap=5.0), GspoSettings(clip_low=0.005, clip_high=0.005))`.

    Args:
        new_logprobs: (T,) of the policy that is trained, with gradient; read inside the mask only.
        batch: the micro-step. Losses of a step's micro-steps add up to its loss.
        settings: left out, as published; `QWENGYRE` for the variant.

    Raises:
        InputError: a tree-packed token is trained by several sequences (`dedup="segment"`).
    """
    if batch.trained_twice:
        raise InputError(
            f"{batch.trained_twice} tokens of a tree-packed micro-step are trained by several sequences, which have "
            'ratios of their own: use pack_rows, or Selection.dedup="token"'
        )
    settings = settings or GspoSettings()
    weight = batch.loss_weights
    logs = log_ratio(new_logprobs, batch)
    ratio = _sequence_ratio(logs.detach(), batch)
    moving = ratio * (logs - logs.detach()).exp()
    objective = clipped(moving, weight, settings.clip_low, settings.clip_high)
    if settings.token_cap is not None:
        objective = objective * (logs.detach().exp().clamp(max=settings.token_cap) / ratio)
    held = is_clipped(ratio, weight, settings.clip_low, settings.clip_high)
    return -objective.sum(), measured(batch, ratio, logs, held)


def _sequence_ratio(logs: Tensor, batch: Batch) -> Tensor:
    """Each token's sequence's ratio, (T,); any value outside the mask."""
    sequence = batch.sequence.clamp(min=0)
    sums = logs.new_zeros(batch.sequences).index_add(0, sequence, logs)
    counts = logs.new_zeros(batch.sequences).index_add(0, sequence, batch.loss_mask.to(logs.dtype))
    return torch.exp(sums / counts.clamp(min=1.0))[sequence]
