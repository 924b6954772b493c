"""Correction for a policy that was not the one that sampled."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .batch import Batch


def decoupled(batch: Batch, proximal_logprobs: Tensor, *, cap: float) -> Batch:
    """Let the objective's ratio start from a proximal policy, and correct for the behaviour policy by its weights.

    Decoupled PPO, Hilton et al. 2022, arXiv:2110.00641, with truncated importance weights: each token's weight is
    multiplied by min(proximal / behaviour, cap), and `logprobs` are the proximal policy's. The result fits every
    objective here; a KL term to a reference policy keeps its weights.

    Args:
        batch: the micro-step, with the log-probabilities that the engine recorded.
        proximal_logprobs: (T,) of the trainer's policy at the start of the step; read inside the mask only.
        cap: above 0.
    """
    proximal = torch.where(batch.loss_mask, proximal_logprobs.detach(), 0.0)
    correction = (proximal - batch.logprobs).exp().clamp(max=cap)
    return replace(batch, logprobs=proximal, loss_weights=batch.loss_weights * correction)
