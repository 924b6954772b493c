"""Which tokens of a packed micro-step see which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

from ...trajectory.objectives import Batch


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens `begin` to `end`; each sees those of its segment up to itself, and `above` whole.

    `above` holds ranges of tokens, in rising order and not touching: the prefix that branches share.
    """

    begin: int
    end: int
    above: tuple[tuple[int, int], ...] = ()

    @property
    def seen(self) -> int:
        """Tokens that its last one sees, itself included."""
        return self.end - self.begin + sum(end - begin for begin, end in self.above)

    def part(self, begin: int, end: int) -> Segment:
        """Return what of it lies in `begin` to `end`."""
        if begin <= self.begin:
            return Segment(self.begin, min(self.end, end), self.above)
        return Segment(begin, min(self.end, end), joined([*self.above, (self.begin, begin)]))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PackedAttention:
    """T tokens in segments side by side: rows are segments with nothing above, trees have a segment for each node.

    A part of it (`part`) asks for some of the tokens and sees all: its segments hold those that ask, in order.
    """

    segments: tuple[Segment, ...]
    attend_until: Tensor  # T, int32, exclusive end of the tokens that see token t: those from t on

    @classmethod
    def of_batch(cls, batch: Batch) -> Self:
        """Read the structure of a packed micro-step, of rows or of trees."""
        if batch.attend_until is not None:
            return cls.of_tree(batch.attend_until)
        assert batch.cu_seqlens is not None
        return cls.of_rows(batch.cu_seqlens)

    @classmethod
    def of_rows(cls, cu_seqlens: Tensor) -> Self:
        """K sequences that start at `cu_seqlens` (K + 1, int), each of which sees itself alone."""
        starts = cu_seqlens.tolist()
        lengths = cu_seqlens.diff()
        until = torch.repeat_interleave(cu_seqlens[1:], lengths).to(torch.int32)
        return cls(tuple(Segment(*pair) for pair in pairwise(starts)), until)

    @classmethod
    def of_tree(cls, attend_until: Tensor) -> Self:
        """Trees of tokens, depth first, as `gyre.trajectory.packing.TreeMicroStep` has them: (T,) int.

        A node is a run of tokens without a branch: `attend_until` falls after one, and the next token that does not see
        the one before it begins another branch.
        """
        until = attend_until.tolist()
        starts = [t for t in range(len(until)) if t == 0 or until[t] != until[t - 1] or t >= until[t - 1]]
        segments: list[Segment] = []
        path: list[Segment] = []  # from the root down to the segment before
        for begin, end in zip(starts, [*starts[1:], len(until)], strict=True):
            while path and until[path[-1].begin] <= begin:
                path.pop()
            segments.append(Segment(begin, end, joined((node.begin, node.end) for node in path)))
            path.append(segments[-1])
        return cls(tuple(segments), attend_until.to(torch.int32))

    def __len__(self) -> int:
        """Number of tokens T."""
        return len(self.attend_until)

    @property
    def first(self) -> int:
        """The first token that asks."""
        return self.segments[0].begin

    def part(self, begin: int, end: int) -> Self:
        """Return the same for the tokens from `begin` to `end` alone: those of their segment before are above them."""
        held = (s for s in self.segments if s.begin < end and s.end > begin)
        return type(self)(tuple(segment.part(begin, end) for segment in held), self.attend_until)

    def to(self, device: torch.device | str) -> Self:
        """Return the same on `device`."""
        return type(self)(self.segments, self.attend_until.to(device))


def joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return ranges in rising order with those that touch as one."""
    out: list[tuple[int, int]] = []
    for begin, end in ranges:
        if out and out[-1][1] == begin:
            out[-1] = (out[-1][0], end)
        else:
            out.append((begin, end))
    return tuple(out)
