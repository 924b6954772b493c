"""Context parallelism: each rank computes a run of a micro-step's tokens and sees the keys and values of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from megatron.core import parallel_state
from torch import Tensor
from torch.distributed.nn.functional import all_gather


@dataclass(frozen=True, slots=True)
class ContextPart:
    """Tokens `begin` to `end` of `tokens`, those of rank `rank` of `ranks`."""

    tokens: int
    rank: int
    ranks: int

    @classmethod
    def of(cls, tokens: int, ranks: int) -> Self:
        """Return this process's part."""
        return cls(tokens, parallel_state.get_context_parallel_rank() if ranks > 1 else 0, ranks)

    @property
    def is_whole(self) -> bool:
        """Whether there is one rank."""
        return self.ranks == 1

    @property
    def begin(self) -> int:
        """First token."""
        return self._bound(self.rank)

    @property
    def end(self) -> int:
        """Token after the last."""
        return self._bound(self.rank + 1)

    def whole(self, values: Tensor) -> Tensor:
        """Return the values of all tokens, (T, ...), of each rank's own; gradients come back to their rank."""
        longest = -(-self.tokens // self.ranks)
        padded = torch.cat([values, values.new_zeros(longest - len(values), *values.shape[1:])])
        group = parallel_state.get_context_parallel_group()
        parts = all_gather(padded.contiguous(), group=group)
        lengths = [self._bound(rank + 1) - self._bound(rank) for rank in range(self.ranks)]
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    def _bound(self, rank: int) -> int:
        return rank * self.tokens // self.ranks
