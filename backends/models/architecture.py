"""The shape of a dense or mixture-of-experts transformer, as its `config.json` states it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RopeKind = Literal["default", "linear", "llama3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary position embedding; `factor` and what follows belong to the kinds that stretch it."""

    theta: float
    kind: RopeKind = "default"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_positions: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The mixture of experts that stands in place of each layer's MLP."""

    number: int
    chosen: int  # experts that a token goes to
    ffn_size: int  # of one expert
    normalized: bool  # whether the chosen experts' weights sum to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder with RMSNorm, rotary positions, grouped-query attention and SwiGLU: Llama, Qwen2, Qwen3, Qwen3-MoE."""

    model_type: str  # as config.json has it
    vocabulary: int
    layers: int
    hidden_size: int
    ffn_size: int  # of a dense MLP
    heads: int
    kv_heads: int
    head_dim: int
    norm_epsilon: float
    rope: Rope
    max_positions: int
    tied: bool  # the output layer is the embedding
    qk_norm: bool
    qkv_bias: bool
    experts: Experts | None = None

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes of keys and values that one token of context takes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * element_bytes
