"""One rank of a cell's trainer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from megatron.core import parallel_state
from torch import Tensor

from gyre.backends.models.attention import PackedAttention
from gyre.backends.models.forward import context_part, forward_stage
from gyre.backends.models.model import Model
from gyre.trajectory.objectives import Batch
from gyre.trajectory.packing import MicroStep

from .figures import Figures, shared_figures
from .flat_weights import FlatWeights
from .logprobs import shared_logprobs
from .objective import objective_loss
from .optimizer import MasterOptimizer
from .parallel import SharedWeights, StageLink
from .settings import TrainerSettings


class Trainer:
    """Computes gradients of micro-steps, and makes updates of the weights.

    All ranks of a cell call the same methods in the same order. Micro-steps come with weights for a step of one
    execution (`Samples.weighted(1)`): a group can be trained before it is known how many executions E the step will
    have. Loss and gradient are linear in these weights, so `update` divides by E.
    """

    def __init__(self, model: Model, settings: TrainerSettings) -> None:
        """Take a loaded model over. Its weights are those of the reference policy, where the objective needs one."""
        self.model: Final = model
        self.settings: Final = settings
        self.version = 0
        self.weights: Final = FlatWeights(model.network)
        self._shared = SharedWeights(model, self.weights)
        self._link = StageLink(model)
        self._optimizer: MasterOptimizer | None = None
        self._reference = self.weights.values.clone() if settings.objective.needs_reference else None

    @property
    def optimizer(self) -> MasterOptimizer:
        """Made when it is first needed: satellites have none."""
        if self._optimizer is None:
            self._optimizer = MasterOptimizer(self.weights, self.settings.optimizer)
        return self._optimizer

    def release(self) -> None:
        """Give the GPU's memory away but for what the process itself needs: all tensors go to the host, till `restore`.

        On CPU nothing happens.
        """
        if self.weights.values.device.type != "cpu":
            self.move(torch.device("cpu"))
            torch.cuda.empty_cache()

    def restore(self) -> None:
        """Take the memory again, where it was given away."""
        if self.weights.values.device.type != self.model.device.type:
            self.move(self.model.device)

    def move(self, device: torch.device) -> None:
        """Hold weights, moments and the reference policy's weights in memory of a device."""
        self.weights.move(device)
        if self._optimizer is not None:
            self._optimizer.follow()
        if self._reference is not None:
            self._reference = self._reference.to(device)

    def load(self, values: Tensor, version: int) -> None:
        """Take a snapshot of this rank's weights, (N,) float32."""
        self.weights.load(values)
        self.version = version

    def gradient(self, step: MicroStep) -> tuple[Tensor, Figures]:
        """Return this rank's part of a micro-step's gradient, (N,) float32, and its figures.

        What several ranks hold is not added up yet: `update` does so, once a step.
        """
        batch = Batch.of(step, self.model.device)
        reference = self._reference_logprobs(batch)
        hidden, out = self._forward(batch)
        figures = None
        if self.model.is_last:
            logprobs = shared_logprobs(self.model, self._tempered(out), batch)
            loss, metrics = objective_loss(self.settings.objective, logprobs, batch, reference)
            loss.backward()
            figures = Figures.of(loss, metrics, logprobs, batch)
        else:
            out.backward(self._link.receive(out, forward=False))
        if hidden is not None:
            assert hidden.grad is not None
            self._link.send(hidden.grad, forward=False)
        if self.model.layout.pipeline > 1:
            group = parallel_state.get_pipeline_model_parallel_group()
            figures = shared_figures(figures, self._link.last_rank, group)
        assert figures is not None
        return self.weights.take_gradient(), figures

    @torch.no_grad()
    def logprobs(self, step: MicroStep) -> Tensor:
        """Return the log-probability of each trained token, (T,) on every rank; 0 outside the mask."""
        return self._logprobs(Batch.of(step, self.model.device))

    def update(self, gradient: Tensor, executions: int) -> dict[str, float]:
        """Make one update with the sum of the step's gradients, (N,) of this rank; return the norm and the rate.

        Args:
            gradient: of weights for a step of one execution; changed in place.
            executions: E, those of the step that have a trained token.
        """
        gradient.div_(max(executions, 1))
        self._shared.sum(gradient)
        norm = math.sqrt(self._shared.squared_norm(gradient))
        if not math.isfinite(norm):
            raise FloatingPointError(f"the gradient's norm is {norm} after version {self.version}: no update is made")
        limit = self.settings.optimizer.max_gradient_norm
        if limit is not None and norm > limit:
            gradient.mul_(limit / norm)
        rate = self.optimizer.update(gradient)
        self.version += 1
        return {"grad_norm": norm, "learning_rate": rate}

    def _tempered(self, logits: Tensor) -> Tensor:
        """Divide by the temperature; at 1, without the memory of a second copy."""
        temperature = self.settings.temperature
        return logits if temperature == 1.0 else logits / temperature

    def _forward(self, batch: Batch) -> tuple[Tensor | None, Tensor]:
        """Run this stage; return what came from the stage before, and what goes on, which was sent."""
        hidden = None
        if not self.model.is_first:
            tokens = context_part(self.model, len(batch.tokens))
            like = torch.empty(
                tokens.end - tokens.begin,
                1,
                self.model.architecture.hidden_size,
                dtype=self.model.dtype,
                device=self.model.device,
            )
            hidden = self._link.receive(like, forward=True)
            if torch.is_grad_enabled():
                hidden.requires_grad_()
        attention = PackedAttention.of_batch(batch)
        out = forward_stage(self.model, batch.tokens, batch.positions, attention, hidden)
        if not self.model.is_last:
            self._link.send(out.detach(), forward=True)
        return hidden, out

    def _logprobs(self, batch: Batch) -> Tensor:
        _, out = self._forward(batch)
        values = torch.zeros(len(batch.tokens), device=self.model.device)
        if self.model.is_last:
            values = shared_logprobs(self.model, self._tempered(out), batch).float()
        return self._link.from_last(values)

    def _reference_logprobs(self, batch: Batch) -> Tensor | None:
        if self._reference is None:
            return None
        with torch.no_grad(), self._weights_of(self._reference):
            return self._logprobs(batch)

    @contextmanager
    def _weights_of(self, values: Tensor) -> Iterator[None]:
        """Stand for another policy."""
        own = self.weights.values.clone()
        self.weights.load(values)
        try:
            yield
        finally:
            self.weights.load(own)
