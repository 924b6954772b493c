"""A group that is ready, as the buffer knows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Entry:
    """A group whose samples may be trained."""

    group: int
    task: int
    version: int  # served at the group's dispatch
    ready_s: float
    tokens: int  # of its samples
    longest_tokens: int  # sampled by its longest execution: says which length class it is in
    size: int  # bytes of its samples
    uses: int = 0  # updates that it was part of
