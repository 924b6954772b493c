"""How a micro-step travels through megatron-core to the modules that need it."""

from __future__ import annotations

from dataclasses import dataclass

from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor

from .attention import PackedAttention
from .context import ContextPart


@dataclass(kw_only=True)
class Packed(PackedSeqParams):  # type: ignore[misc]  # megatron-core has no types
    """A micro-step as the `packed_seq_params` of megatron-core, which hands it to every layer, recomputed ones too.

    The format stays `sbhd`: tensors keep a batch of one, and rotary angles come by position (`PositionRotary`).
    """

    positions: Tensor  # of this rank's tokens
    attention: PackedAttention  # what they ask
    context: ContextPart | None = None
