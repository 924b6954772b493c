"""One pass through a rank's part of the model. This is all that a trainer calls.

Inputs come from `gyre.trajectory.objectives.Batch`: `batch.tokens`, `batch.positions` and
`PackedAttention.of_batch(batch)`. T tokens are one packed micro-step, of rows or of trees. With context parallelism
every rank gets all T, computes those of `context_part(model, T)` and returns what belongs to them, P in place of T.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from .attention import PackedAttention
from .context import ContextPart
from .model import Model
from .packed import Packed

PADDING_LOGIT: Final = -1e9
"""Logits of rows that only fill the vocabulary up: no probability, and finite, so that 0 times it is 0."""


def forward_logits(model: Model, tokens: Tensor, positions: Tensor, attention: PackedAttention) -> Tensor:
    """Return the logits of a model that is one pipeline stage, (T, V / tensor) in the model's dtype.

    V is the padded vocabulary; with tensor parallelism a rank has its part of it, as
    `megatron.core.tensor_parallel.vocab_parallel_cross_entropy` takes it. Logits at t predict what follows t.

    Args:
        model: from `gyre.backends.models.model.build`.
        tokens: (T,) int64.
        positions: (T,) int, tokens before each in its sequence.
        attention: which tokens see which.
    """
    assert model.layout.pipeline == 1, "a stage of a pipeline: call forward_stage"
    return forward_stage(model, tokens, positions, attention)


def forward_stage(
    model: Model, tokens: Tensor, positions: Tensor, attention: PackedAttention, hidden: Tensor | None = None
) -> Tensor:
    """Return what this pipeline stage hands on: hidden states (T, 1, hidden), or logits as `forward_logits` does.

    Args:
        model: the rank's part.
        tokens: (T,) int64; only the first stage embeds them.
        positions: (T,) int.
        attention: which tokens see which.
        hidden: what the stage before handed on; None at the first.
    """
    network: Any = model.network
    part = context_part(model, len(tokens))
    packed = Packed(
        qkv_format="sbhd",
        positions=positions[part.begin : part.end].to(model.device),
        attention=(attention if part.is_whole else attention.part(part.begin, part.end)).to(model.device),
        context=None if part.is_whole else part,
    )
    if not model.is_first:
        network.set_input_tensor(hidden)
    out: Tensor = network(
        input_ids=tokens[part.begin : part.end].to(model.device)[None],
        position_ids=packed.positions[None],
        attention_mask=None,
        packed_seq_params=packed,
    )
    if not model.is_first:
        network.set_input_tensor(None)  # it would keep them on the GPU for as long as the cell serves
    return _without_padding(model, out[0]) if model.is_last else out


def context_part(model: Model, tokens: int) -> ContextPart:
    """Return which of T tokens this rank computes; T must not be below `layout.context`."""
    return ContextPart.of(tokens, model.layout.context)


def _without_padding(model: Model, logits: Tensor) -> Tensor:
    """Give rows beyond the vocabulary no probability."""
    first = model.tensor_rank * logits.shape[-1]
    beyond = first + logits.shape[-1] - model.architecture.vocabulary
    if beyond <= 0:
        return logits
    padding = torch.arange(first, first + logits.shape[-1], device=logits.device) >= model.architecture.vocabulary
    return logits.masked_fill(padding, PADDING_LOGIT)
