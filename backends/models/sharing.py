"""A rank's part of a weight, made of the hub's weights and taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .tensor_table import Joined, Shape, Weight

ReadPart = Callable[[str, int, int, int], Tensor]
"""Of a name: its part along a dimension, from, to."""


def local_range(weight: Weight, index: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return what tensor rank `rank` of `ranks` holds of the hub's weight number `index`, along `weight.split`."""
    assert weight.split is not None
    size = weight.shapes[index][weight.split]
    each = (weight.padded_rows or size) // ranks
    return min(rank * each, size), min((rank + 1) * each, size)


def local_shape(weight: Weight, ranks: int) -> Shape:
    """Return the shape of a rank's part in megatron-core."""
    shape = list(weight.shapes[0])
    if weight.split is not None:
        shape[weight.split] = (weight.padded_rows or shape[weight.split]) // ranks
    if weight.joined is not Joined.ALONE:
        shape[0] = sum(part[0] for part in weight.shapes) // ranks
    return tuple(shape)


def assemble(weight: Weight, kv_heads: int, rank: int, ranks: int, read: ReadPart) -> Tensor:
    """Make a rank's part of what `read` returns; rows that only fill the vocabulary up are zero."""
    parts = []
    for index, name in enumerate(weight.hub):
        span = (0, weight.shapes[index][0]) if weight.split is None else local_range(weight, index, rank, ranks)
        parts.append(read(name, weight.split or 0, *span))
    whole = _join(weight.joined, parts, kv_heads // ranks)
    missing = local_shape(weight, ranks)[0] - len(whole)
    return whole if missing == 0 else torch.cat([whole, whole.new_zeros(missing, *whole.shape[1:])])


def take_apart(weight: Weight, kv_heads: int, parts: Sequence[Tensor]) -> list[Tensor]:
    """Make the hub's weights of the parts of all tensor ranks, in their order; of one part where they hold the same."""
    ranks = len(parts)
    apart = [_part(weight, part, kv_heads // ranks, ranks) for part in parts]
    if weight.split is None:
        return apart[0]
    wholes = [torch.cat(pieces, weight.split) if ranks > 1 else pieces[0] for pieces in zip(*apart, strict=True)]
    return [whole[: shape[0]] for whole, shape in zip(wholes, weight.shapes, strict=True)]


def _join(joined: Joined, parts: list[Tensor], kv_heads: int) -> Tensor:
    if joined is Joined.ALONE:
        return parts[0]
    if joined is Joined.STACKED:
        return torch.cat(parts)
    by_head = [part.reshape(kv_heads, -1, *part.shape[1:]) for part in parts]
    return torch.cat(by_head, 1).reshape(-1, *parts[0].shape[1:])


def _part(weight: Weight, part: Tensor, kv_heads: int, ranks: int) -> list[Tensor]:
    if weight.joined is Joined.ALONE:
        return [part]
    rows = [shape[0] // ranks for shape in weight.shapes]
    if weight.joined is Joined.STACKED:
        return list(part.split(rows))
    by_head = part.reshape(kv_heads, -1, *part.shape[1:]).split([count // kv_heads for count in rows], 1)
    return [piece.reshape(-1, *part.shape[1:]) for piece in by_head]
