"""The package flash-attn for packed rows and trees, in one call a layer. Needs a GPU; not run by the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self
from weakref import WeakKeyDictionary

import torch
from flash_attn import flash_attn_varlen_func
from torch import Tensor

from .attention import PackedAttention
from .core_attention import PackedCoreAttention, seen_by


@dataclass(frozen=True, slots=True, eq=False)
class VarlenCall:
    """A call for S segments, whose keys stand one segment's after the other's."""

    keys: Tensor  # tokens whose keys each segment sees, int64
    query_starts: Tensor  # S + 1, int32
    key_starts: Tensor  # S + 1, int32
    longest_query: int
    longest_key: int

    @classmethod
    def of(cls, attention: PackedAttention) -> Self:
        """Lay out what the segments see."""
        device = attention.attend_until.device
        tokens = torch.arange(len(attention))
        asking = torch.tensor([0, *(segment.end - segment.begin for segment in attention.segments)])
        seen = torch.tensor([0, *(segment.seen for segment in attention.segments)])
        return cls(
            torch.cat([seen_by(segment, tokens) for segment in attention.segments]).to(device),
            asking.cumsum(0).to(device, torch.int32),
            seen.cumsum(0).to(device, torch.int32),
            int(asking.max()),
            int(seen.max()),
        )


_calls: Final[WeakKeyDictionary[PackedAttention, VarlenCall]] = WeakKeyDictionary()  # one for all layers


class FlashAttention(PackedCoreAttention):
    """A segment's queries stand at the end of the keys that it sees: the kernel's causal mask ends at both ends."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention: PackedAttention) -> Tensor:
        """See `PackedCoreAttention.attend`."""
        if attention not in _calls:
            _calls[attention] = VarlenCall.of(attention)
        call = _calls[attention]
        out: Tensor = flash_attn_varlen_func(
            query,
            key[call.keys],
            value[call.keys],
            call.query_starts,
            call.key_starts,
            call.longest_query,
            call.longest_key,
            softmax_scale=self.scale,
            causal=True,
        )
        return out
