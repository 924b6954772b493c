"""Log-probabilities of trained tokens from logits that the ranks of a cell share."""

from __future__ import annotations

from dataclasses import replace

from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from torch import Tensor

from gyre.backends.models.forward import context_part
from gyre.backends.models.model import Model
from gyre.trajectory.objectives import Batch, token_logprobs

from .parallel import summed_over_context


def shared_logprobs(model: Model, logits: Tensor, batch: Batch) -> Tensor:
    """Log-probability of each trained token, (T,), the same on all ranks of the last stage; 0 outside the mask.

    Args:
        model: the rank's part, of the last stage.
        logits: (P, V / tensor) of this rank, divided by the temperature.
        batch: the micro-step of T tokens.
    """
    part = context_part(model, len(batch.tokens))
    own = batch
    if not part.is_whole:
        held = batch.loss_mask & (batch.predictor >= part.begin) & (batch.predictor < part.end)
        own = replace(batch, predictor=batch.predictor - part.begin, loss_mask=held)
    values = token_logprobs(logits, own) if model.layout.tensor == 1 else _vocabulary_shared(logits, own)
    return values if part.is_whole else summed_over_context(values)


def _vocabulary_shared(logits: Tensor, batch: Batch) -> Tensor:
    """As `token_logprobs`, of a rank's part of the vocabulary."""
    trained = batch.loss_mask.nonzero().squeeze(1)
    # Indexing copies: the operator writes over logits that are float32.
    rows = logits[batch.predictor[trained]][:, None]
    values: Tensor = -vocab_parallel_cross_entropy(rows, batch.tokens[trained][:, None])[:, 0]
    every: Tensor = values.new_zeros(len(batch.tokens)).index_copy(0, trained, values)
    return every
