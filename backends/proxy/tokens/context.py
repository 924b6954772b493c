"""Token ids of contexts that grow from one another: each holds its own tokens, and what came before by reference."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gyre.arrays import Int32Array


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """The tokens of `parent`, then n `tail` tokens."""

    parent: Context | None
    tail: Int32Array
    length: int = field(init=False)  # of the whole

    def __post_init__(self) -> None:
        self.tail.flags.writeable = False
        object.__setattr__(self, "length", len(self.tail) + (self.parent.length if self.parent else 0))

    def ids(self) -> Int32Array:
        """Return all tokens as a new array, (length,)."""
        pieces: list[Int32Array] = []
        at: Context | None = self
        while at is not None:
            pieces.append(at.tail)
            at = at.parent
        return np.concatenate(pieces[::-1])
