"""Trainers of cells that help the core, as the driver holds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class SatelliteLostError(Exception):
    """A satellite did not come up, has ended, or does not answer. It is of no use any more: end it."""


class RunningSatellite(Protocol):
    """A resident trainer: built once, it joins the core's steps and leaves them, again and again."""

    @property
    def size(self) -> int:
        """Values in its vectors."""
        ...

    @property
    def layout(self) -> str:
        """See `gyre.backends.training.cell.TrainingCell.layout`."""
        ...

    @property
    def problem(self) -> str:
        """Why it cannot train: it has ended, or was silent for too long; "" where nothing is known."""
        ...

    async def join(self) -> None:
        """Let it claim micro-steps from now on.

        Raises:
            SatelliteLostError: it has ended.
        """
        ...

    async def leave(self) -> None:
        """Let it claim no more; return when the micro-step that it was computing is with the core, or given up.

        Raises:
            SatelliteLostError: it has ended.
        """
        ...

    async def end(self) -> None:
        """End it and whatever it started, whatever state it is in."""
        ...


SatelliteLaunch = Callable[[int, str], Awaitable[RunningSatellite]]
"""Starts the trainer of a cell, given the cell and the core's address; returns when it is built.

Cancelled or failed, it leaves nothing. It raises SatelliteLostError where the trainer cannot be built.
"""
