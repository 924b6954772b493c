"""What computes attention inside megatron-core's layers, by name, through the slot that its layer spec has for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import torch
from megatron.core.transformer.module import MegatronModule
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from ...errors import InputError
from ...imported import imported
from .attention import PackedAttention, Segment, joined
from .packed import Packed

_HERE: Final = "gyre.backends.models"

CORE_ATTENTIONS: Final[Mapping[str, str]] = {
    "sdpa": f"{_HERE}.core_attention:SegmentAttention",
    "flash": f"{_HERE}.flash_attention:FlashAttention",
    "flex": f"{_HERE}.flex_attention:FlexAttention",
    "transformer_engine": f"{_HERE}.te_attention:EngineAttention",
}
"""Modules by name. `sdpa` runs everywhere; the others need a GPU and, but for `flex`, a package."""


def core_attention(name: str) -> type[Any]:
    """Return the module of that name, or `module:Class` of one's own.

    Raises:
        InputError: there is none of that name, or its package is not installed.
    """
    path = CORE_ATTENTIONS.get(name, name)
    if ":" not in path:
        raise InputError(f"attention is {name!r}: give one of {', '.join(CORE_ATTENTIONS)}, or module:Class")
    found = imported(path, f"attention {name!r}")
    if not isinstance(found, type):
        raise InputError(f"attention {name!r} is no class: give the name of one")
    return found


class PackedCoreAttention(MegatronModule, ABC):  # type: ignore[misc]  # megatron-core has no types
    """A slot's module: subclasses compute `attend` for T tokens."""

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
    ) -> None:
        """Take what megatron-core gives each layer's attention."""
        super().__init__(config=config)
        self.scale: Final = softmax_scale if softmax_scale is not None else config.kv_channels**-0.5

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        attn_mask_type: Any = None,
        attention_bias: Tensor | None = None,
        packed_seq_params: Packed | None = None,
    ) -> Tensor:
        """Return (T, 1, heads * channels) of query (T, 1, heads, channels), key and value (T, 1, KV heads, ...)."""
        assert packed_seq_params is not None, "a micro-step comes as Packed: call forward_stage"
        attention, context = packed_seq_params.attention, packed_seq_params.context
        if context is not None:
            key, value = context.whole(key), context.whole(value)
        out = self.attend(query[:, 0], key[:, 0], value[:, 0], attention)
        return out.reshape(len(out), 1, -1)

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention: PackedAttention) -> Tensor:
        """Return the shape of query, (tokens that ask, heads, channels); key and value: (T, KV heads, channels)."""


class SegmentAttention(PackedCoreAttention):
    """PyTorch's scaled dot-product attention, one call a segment, over what the segment sees and nothing else.

    Work and memory grow with the pairs of tokens that see each other, not with T squared.
    """

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention: PackedAttention) -> Tensor:
        """See `PackedCoreAttention.attend`."""
        sizes = [segment.end - segment.begin for segment in attention.segments]
        asked = query.split(sizes)
        return torch.cat([self._segment(s, q, key, value) for s, q in zip(attention.segments, asked, strict=True)])

    def _segment(self, segment: Segment, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        shape = len(query), segment.seen
        out = functional.scaled_dot_product_attention(
            _heads_first(query),
            _heads_first(seen_by(segment, key)),
            _heads_first(seen_by(segment, value)),
            attn_mask=causal_lower_right(*shape) if segment.above else None,
            is_causal=not segment.above,
            scale=self.scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return out[0].transpose(0, 1)


def seen_by(segment: Segment, values: Tensor) -> Tensor:
    """Return the rows of `values` that a segment sees, in the order of the tokens; a view where they are one range."""
    ranges = joined([*segment.above, (segment.begin, segment.end)])
    if len(ranges) == 1:
        return values[slice(*ranges[0])]
    return torch.cat([values[begin:end] for begin, end in ranges])


def _heads_first(values: Tensor) -> Tensor:
    return values.transpose(0, 1)[None]
