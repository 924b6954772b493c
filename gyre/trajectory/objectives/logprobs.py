"""Log-probabilities of the trained tokens, from a model's logits."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from .batch import Batch

CHUNK_ELEMENTS: Final = 1 << 24
"""Logits that are held in float32 at once: 64 MiB."""


def token_logprobs(logits: Tensor, batch: Batch) -> Tensor:
    """Log-probability of each trained token, (T,); 0 outside the loss mask.

    Token t is predicted by the logits at `predictor[t]`, in rows and trees alike. The log-softmax is taken in float32
    (in float64 for logits in float64), some rows at a time, so that neither a copy of the logits nor one of the
    softmax is kept: backward computes it again. Beside the logits only their gradient takes memory.

    Args:
        logits: (T, V), any floating type; divided by the temperature that sampled the tokens, where it was not 1.
        batch: the micro-step that went through the model.
    """
    trained = batch.loss_mask.nonzero().squeeze(1)
    values: Tensor = _TokenLogprobs.apply(logits, batch.predictor[trained], batch.tokens[trained])  # type: ignore[no-untyped-call]
    return values.new_zeros(len(batch.tokens)).index_copy(0, trained, values)


class _TokenLogprobs(torch.autograd.Function):
    """log_softmax(logits[rows], -1) at `tokens`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
        precise = torch.promote_types(logits.dtype, torch.float32)
        chunks = [logits[part].to(precise).logsumexp(-1) for part in torch.split(rows, _chunk(logits))]
        norms = torch.cat(chunks) if chunks else logits.new_zeros(0, dtype=precise)
        ctx.save_for_backward(logits, rows, tokens, norms)
        return logits[rows, tokens].to(precise) - norms

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, rows, tokens, norms = ctx.saved_tensors
        result = torch.zeros_like(logits)
        size = _chunk(logits)
        parts = (torch.split(each, size) for each in (rows, tokens, norms, gradients[0]))
        for row, token, norm, gradient in zip(*parts, strict=True):
            scaled = (logits[row].to(norm.dtype) - norm[:, None]).exp_().mul_(-gradient[:, None])
            scaled.scatter_add_(1, token[:, None], gradient[:, None])
            result.index_add_(0, row, scaled.to(result.dtype))  # tokens after a fork have one predictor
        return result, None, None


def _chunk(logits: Tensor) -> int:
    return max(1, CHUNK_ELEMENTS // max(1, logits.shape[-1]))
