"""What ranks of one cell exchange in training: between pipeline stages, and of weights that several of them hold."""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor

from gyre.backends.models.model import Model
from gyre.backends.models.tensor_table import weights as model_weights

from .flat_weights import FlatWeights, Place

_HEAD_NORMS: Final = ("q_layernorm.weight", "k_layernorm.weight")


class StageLink:
    """A rank's neighbours in the pipeline."""

    def __init__(self, model: Model) -> None:
        """Take the rank's part of the model."""
        self._stride = model.layout.tensor * model.layout.context
        self._rank = dist.get_rank()
        self._stages = model.layout.pipeline

    @property
    def last_rank(self) -> int:
        """The rank in the last stage that stands where this one does in its own."""
        return self._rank % self._stride + (self._stages - 1) * self._stride

    def send(self, values: Tensor, *, forward: bool) -> None:
        """Send to the next stage, or back to the one before."""
        dist.send(values.contiguous(), self._rank + (self._stride if forward else -self._stride))

    def receive(self, like: Tensor, *, forward: bool) -> Tensor:
        """Receive what goes forward, from the stage before, or what comes back from the next."""
        values = torch.empty_like(like)
        dist.recv(values, self._rank + (-self._stride if forward else self._stride))
        return values

    def from_last(self, values: Tensor) -> Tensor:
        """Return what the last stage has, in the memory of `values`."""
        if self._stages > 1:
            dist.broadcast(values, self.last_rank, group=parallel_state.get_pipeline_model_parallel_group())
        return values


class _Summed(torch.autograd.Function):
    """Sum over a group whose ranks then all compute the same: each rank's gradient is that of its own part."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        total = values.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def summed_over_context(values: Tensor) -> Tensor:
    """Sum over the ranks of context parallelism, with gradient."""
    total: Tensor = _Summed.apply(values, parallel_state.get_context_parallel_group())  # type: ignore[no-untyped-call]
    return total


class SharedWeights:
    """Weights that several ranks of a cell hold. Every rank must have the sum of what each contributes to them.

    Norms of queries and keys see only a rank's own heads; a tied embedding is in the first and in the last stage;
    with context parallelism each rank has seen its own tokens.
    """

    def __init__(self, model: Model, weights: FlatWeights) -> None:
        """Take the rank's part of the model."""
        self._model = model
        self._weights = weights
        every = list(model_weights(model.architecture, model.layout))
        copied = {one.hub for one in every if one.is_copy}
        own = {one.core: one for one in every if one.stage == model.stage}
        self._split = {name for name, one in own.items() if one.split is not None}
        self._copies = {name for name, one in own.items() if one.is_copy}
        self._head_norms = [place for place in weights.places if place.name.endswith(_HEAD_NORMS)]
        self._tied = [place for place in weights.places if own[place.name].hub in copied]

    def sum(self, gradient: Tensor) -> None:
        """Add up, in place, what other ranks contribute to this rank's gradient (N,); all ranks of the cell call it."""
        layout = self._model.layout
        if layout.context > 1:
            dist.all_reduce(gradient, group=parallel_state.get_context_parallel_group())
        if layout.tensor > 1 and self._head_norms:
            parts = [FlatWeights.view(gradient, place) for place in self._head_norms]
            joined = torch.cat([part.flatten() for part in parts])
            dist.all_reduce(joined, group=parallel_state.get_tensor_model_parallel_group())
            for part, values in zip(parts, joined.split([part.numel() for part in parts]), strict=True):
                part.copy_(values.view_as(part))
        for place in self._tied:
            dist.all_reduce(FlatWeights.view(gradient, place), group=parallel_state.get_embedding_group())

    def squared_norm(self, gradient: Tensor) -> float:
        """Return the sum of squares over all weights of the cell's model, each counted once; all ranks call it."""
        total = torch.zeros((), dtype=torch.float64, device=gradient.device)
        for place in self._weights.places:
            if self._counts(place):
                total += FlatWeights.view(gradient, place).double().square().sum()
        if self._model.layout.ranks > 1:  # NCCL's first collective takes hundreds of MB of the GPU, for good
            dist.all_reduce(total)
        return float(total)

    def _counts(self, place: Place) -> bool:
        """Whether this rank is the one that counts a weight."""
        if self._model.layout.context > 1 and parallel_state.get_context_parallel_rank() > 0:
            return False
        return place.name not in self._copies and (place.name in self._split or self._model.tensor_rank == 0)
