"""Weights of a model whose parts its ranks hold, whole and by their names on the hub."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from .model import Model
from .sharing import local_shape, take_apart
from .tensor_table import Weight, weights


def gathered(model: Model) -> Iterator[tuple[str, Tensor]]:
    """Go through the model's weights as the hub has them; every rank of the cell must run it to its end.

    On rank 0 it yields each name and the whole weight, on the model's device and in its dtype, one joined weight in
    memory at a time. On other ranks it yields nothing: they send what they hold. What is yielded may be a view of the
    model's own memory: copy it before the next update.
    """
    held = dict(model.network.named_parameters())
    for weight in weights(model.architecture, model.layout):
        if weight.is_copy:
            continue
        own = held.get(weight.core) if weight.stage == model.stage else None
        parts = _collected(model, weight, None if own is None else own.detach())
        if parts:
            yield from zip(weight.hub, take_apart(weight, model.architecture.kv_heads, parts), strict=True)


def _collected(model: Model, weight: Weight, own: Tensor | None) -> list[Tensor]:
    """Return the parts of a weight by tensor rank, on rank 0; send this rank's, elsewhere."""
    layout = model.layout
    first = weight.stage * layout.tensor * layout.context
    owners = range(first, first + (1 if weight.split is None else layout.tensor))
    rank = dist.get_rank()
    if rank != 0:
        if rank in owners:
            assert own is not None
            dist.send(own.contiguous(), 0)
        return []
    parts = []
    for owner in owners:
        if owner == 0:
            assert own is not None
            parts.append(own)
        else:
            part = torch.empty(local_shape(weight, layout.tensor), dtype=model.dtype, device=model.device)
            dist.recv(part, owner)
            parts.append(part)
    return parts
