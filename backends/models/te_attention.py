"""TransformerEngine's attention for packed rows. Needs a GPU and TransformerEngine; not run by the tests."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.extensions.transformer_engine import TEDotProductAttention
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor

from ...errors import InputError
from .packed import Packed


class EngineAttention(TEDotProductAttention):  # type: ignore[misc]  # megatron-core has no types
    """Rows side by side in the `thd` format. Trees and context parallelism: take `flash`, `flex` or `sdpa`."""

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
        """Return (T, 1, heads * channels), as `PackedCoreAttention.forward` does."""
        assert packed_seq_params is not None, "a micro-step comes as Packed: call forward_stage"
        segments = packed_seq_params.attention.segments
        if packed_seq_params.context is not None or any(segment.above for segment in segments):
            raise InputError("attention 'transformer_engine' takes rows alone: give 'flash', 'flex' or 'sdpa'")
        starts = torch.tensor([0, *(segment.end for segment in segments)], dtype=torch.int32, device=query.device)
        longest = max(segment.seen for segment in segments)
        rows = PackedSeqParams(
            qkv_format="thd",
            cu_seqlens_q=starts,
            cu_seqlens_kv=starts,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
        )
        out: Tensor = super().forward(
            query[:, 0], key[:, 0], value[:, 0], None, attn_mask_type=attn_mask_type, packed_seq_params=rows
        )
        return out.reshape(len(out), 1, -1)
