"""The optimizer of a rank's master weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .flat_weights import FlatWeights
from .settings import OptimizerSettings

MOMENTS = ("exp_avg", "exp_avg_sq")


class MasterOptimizer:
    """PyTorch's AdamW on float32 master weights.

    megatron-core's optimizers exist to share state out over data-parallel ranks; between cells there is no such group,
    and inside a cell every weight belongs to one rank, so they would add nothing but their needs of CUDA.
    """

    def __init__(self, weights: FlatWeights, settings: OptimizerSettings) -> None:
        """Take the master weights."""
        self._weights = weights
        self._settings = settings
        self.updates = 0
        self._masters = [nn.Parameter(weights.view(weights.values, place)) for place in weights.places]
        decayed = [one for one in self._masters if one.dim() > 1]
        plain = [one for one in self._masters if one.dim() <= 1]
        groups = [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        self._adam = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
        )

    def update(self, gradient: Tensor) -> float:
        """Make one update of the master weights with a clipped gradient (N,); return the learning rate."""
        rate = self._settings.rate(self.updates)
        for group in self._adam.param_groups:
            group["lr"] = rate
        for master, place in zip(self._masters, self._weights.places, strict=True):
            master.grad = self._weights.view(gradient, place)
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        self._weights.spread()
        self.updates += 1
        return rate

    def state(self) -> dict[str, Tensor]:
        """Return both moments, (N,) each; zeros before the first update."""
        return {name: torch.cat([self._moment(master, name).flatten() for master in self._masters]) for name in MOMENTS}

    def restore(self, moments: dict[str, Tensor], updates: int) -> None:
        """Take up moments (N,) after so many updates."""
        self.updates = updates
        if updates == 0:
            return
        for master, place in zip(self._masters, self._weights.places, strict=True):
            state: dict[str, Any] = self._adam.state[master]
            state["step"] = torch.tensor(float(updates))
            for name in MOMENTS:
                state[name] = self._weights.view(moments[name], place).to(master.device, copy=True)

    def follow(self) -> None:
        """Take up master weights that have moved to another device, and the moments with them."""
        for master, place in zip(self._masters, self._weights.places, strict=True):
            master.data = self._weights.view(self._weights.values, place)
            state = self._adam.state.get(master) or {}
            for name in state.keys() & set(MOMENTS):
                state[name] = state[name].to(master.device)

    def _moment(self, master: nn.Parameter, name: str) -> Tensor:
        state = self._adam.state.get(master)
        return torch.zeros_like(master) if not state else state[name]
