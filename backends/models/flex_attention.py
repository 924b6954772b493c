"""PyTorch's FlexAttention for packed rows and trees: one kernel for a micro-step. It has no backward pass on a CPU."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from .attention import PackedAttention
from .core_attention import PackedCoreAttention

_BLOCK: Final = 128  # tokens, of queries and of keys
_masks: Final[WeakKeyDictionary[PackedAttention, BlockMask]] = WeakKeyDictionary()  # one for all layers
_compiled: Any = torch.compile(flex_attention, dynamic=True)


class FlexAttention(PackedCoreAttention):
    """Key k is seen by queries from k to `attend_until[k]`."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention: PackedAttention) -> Tensor:
        """See `PackedCoreAttention.attend`."""
        if attention not in _masks:
            _masks[attention] = _mask(attention, len(query))
        compute = _compiled if query.is_cuda else flex_attention
        out: Tensor = compute(
            *(values.transpose(0, 1)[None].contiguous() for values in (query, key, value)),
            block_mask=_masks[attention],
            scale=self.scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return out[0].transpose(0, 1)


def _mask(attention: PackedAttention, queries: int) -> BlockMask:
    until, first = attention.attend_until, attention.first

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query + first) & (query + first < until[key])

    some, every = _seen_blocks(attention, queries)
    return BlockMask.from_kv_blocks(
        *_listed(some & ~every),
        *_listed(every),
        BLOCK_SIZE=_BLOCK,
        mask_mod=sees,
        seq_lengths=(queries, len(attention)),
    )


def _seen_blocks(attention: PackedAttention, queries: int) -> tuple[Tensor, Tensor]:
    """Return whether queries of a block see some, and all, of the keys of another, (query blocks, key blocks) bool.

    `create_block_mask` does the same by a mask of all pairs: 64k tokens would take 4 GiB of it, several times.
    """
    until, tokens = attention.attend_until, len(attention)
    key = torch.arange(tokens, device=until.device)
    beyond = -tokens % _BLOCK  # keys that only fill the last block up
    counts = []
    for begin in range(0, queries, _BLOCK):
        query = attention.first + torch.arange(begin, min(begin + _BLOCK, queries), device=until.device)[:, None]
        seen = functional.pad((key <= query) & (query < until), (0, beyond))
        counts.append(seen.view(len(query), -1, _BLOCK).sum((0, 2)))
    count = torch.stack(counts)
    return count > 0, count == _BLOCK * _BLOCK


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many key blocks each query block has, and their numbers, as `BlockMask` wants them."""
    numbers = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], numbers.to(torch.int32)[None, None]
