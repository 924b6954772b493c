"""Bringing the KV of a moved reply along, where engines can."""

from __future__ import annotations

from typing import Protocol

from gyre.arrays import Int32Array


class KVTransfer(Protocol):
    """A way to move KV between engines. It may fail: the target then computes what it lacks."""

    async def move(self, source: str, target: str, token_ids: Int32Array) -> None:
        """Bring the KV of these tokens (n) to the target, from a source that may be gone. Never raises."""
        ...


class Recompute:
    """No transfer: the target computes the KV itself."""

    async def move(self, source: str, target: str, token_ids: Int32Array) -> None:
        """Do nothing."""
