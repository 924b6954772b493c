"""A small causal transformer in torch, fed with positions and a mask."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn


class SmallTransformer(nn.Module):
    """Two layers from torch, with learned positions; no dropout."""

    VOCABULARY: ClassVar[int] = 512
    WIDTH: ClassVar[int] = 128
    POSITIONS: ClassVar[int] = 8192

    def __init__(self) -> None:
        """Draw weights from torch's global generator."""
        super().__init__()
        self.tokens = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.positions = nn.Embedding(self.POSITIONS, self.WIDTH)
        layer = nn.TransformerEncoderLayer(self.WIDTH, 4, 4 * self.WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(self.WIDTH, self.VOCABULARY)

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Logits (T, VOCABULARY) of T tokens; query q sees key k where `mask[q, k]` holds."""
        embedded = self.tokens(tokens) + self.positions(positions)
        logits: Tensor = self.head(self.layers(embedded[None], mask=torch.logical_not(mask))[0])
        return logits
