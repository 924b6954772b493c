"""Rotary position embedding by position ids: tokens of a packed micro-step say where they stand."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .architecture import Rope
from .packed import Packed


def inverse_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Radians a position for each pair of channels, (head_dim / 2,) float32, rounded as transformers rounds them.

    Source: Su et al. 2021, RoFormer; Chen et al. 2023, Position Interpolation, for `linear`; for `llama3` the code
    released with Llama 3.1: short waves stay, long ones are stretched by `factor`, those between in part.
    """
    plain = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim))
    if rope.kind == "default":
        return plain
    if rope.kind == "linear":
        return plain / rope.factor
    wave = 2 * math.pi / plain
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    kept = (rope.original_positions / wave - low) / (high - low)
    between = (1 - kept) * plain / rope.factor + kept * plain
    stretched = torch.where(wave > rope.original_positions / low, plain / rope.factor, between)
    return torch.where(wave < rope.original_positions / high, plain, stretched)


class PositionRotary(nn.Module):
    """In place of megatron-core's rotary module, which counts positions from 0 and ignores position ids.

    The model hands the micro-step to `get_rotary_seq_len` and what that returns to `forward`: positions, not a length.
    """

    def __init__(self, rope: Rope, head_dim: int) -> None:
        """Make the frequencies of `rope` for heads of `head_dim` channels."""
        super().__init__()
        self._frequencies = inverse_frequencies(rope, head_dim)  # no buffer: it stays float32 in a bfloat16 model

    def get_rotary_seq_len(
        self, inference_context: Any, decoder: Any, decoder_input: Any, config: Any, packed: Packed
    ) -> Tensor:
        """Return the positions of the micro-step's tokens, (T,)."""
        return packed.positions

    def forward(self, positions: Tensor, packed_seq: bool = False, cp_group: Any = None) -> Tensor:
        """Return angles, (T, 1, 1, head_dim) float32: each pair's twice, as megatron-core rotates halves."""
        self._frequencies = self._frequencies.to(positions.device)
        angles = positions.to(torch.float32)[:, None] * self._frequencies
        return torch.cat((angles, angles), -1)[:, None, None, :]
