"""An objective, as settings name it, on a micro-step."""

from __future__ import annotations

from torch import Tensor

from gyre.trajectory.objectives import Batch, Metrics, grpo_loss, gspo_loss, ppo_loss

from .settings import ObjectiveSettings


def objective_loss(
    settings: ObjectiveSettings, logprobs: Tensor, batch: Batch, reference_logprobs: Tensor | None = None
) -> tuple[Tensor, Metrics]:
    """Return the micro-step's part of the step's loss, and what to watch; see `gyre.trajectory.objectives`."""
    if settings.kind == "ppo":
        return ppo_loss(logprobs, batch, settings.ppo)
    if settings.kind == "gspo":
        return gspo_loss(logprobs, batch, settings.gspo)
    return grpo_loss(logprobs, batch, settings.grpo, reference_logprobs=reference_logprobs)
