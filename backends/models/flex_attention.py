"""PyTorch's FlexAttention for packed rows and trees: one kernel for a micro-step. It has no backward pass on a CPU."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from .attention import PackedAttention
from .core_attention import PackedCoreAttention

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

    return create_block_mask(sees, None, None, queries, len(attention), device=until.device)
