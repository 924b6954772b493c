"""Paths of a tree that are selected for training."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..arrays import Int32Array, Int64Array


class Dedup(StrEnum):
    """What is trained only once in an execution."""

    TOKEN = "token"  # a token after its prefix, on the first selected path that holds it
    SEGMENT = "segment"  # a call's output, on the first selected path that goes through its end


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """P root-to-leaf paths of one tree, in the order of selection."""

    leaf: Int32Array  # P, index into the tree's leaves
    length: Int64Array  # P, leading tokens of the path that are kept
    dedup: Dedup = Dedup.TOKEN

    def __len__(self) -> int:
        """Number of paths P."""
        return len(self.leaf)
