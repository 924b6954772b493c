"""Objectives as small functions in torch. The only part of the core that needs it: `pip install 'gyre[torch]'`."""

from __future__ import annotations

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("gyre.trajectory.objectives needs torch: pip install 'gyre[torch]'") from error

from .batch import Batch
from .grpo import GrpoSettings, grpo_loss
from .gspo import QWENGYRE, GspoSettings, gspo_loss
from .logprobs import token_logprobs
from .metrics import Metrics
from .off_policy import decoupled
from .ppo import PpoSettings, ppo_loss

__all__ = [
    "QWENGYRE",
    "Batch",
    "GrpoSettings",
    "GspoSettings",
    "Metrics",
    "PpoSettings",
    "decoupled",
    "grpo_loss",
    "gspo_loss",
    "ppo_loss",
    "token_logprobs",
]
