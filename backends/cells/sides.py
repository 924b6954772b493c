"""The two sides of a cell: what serves and what trains."""

from __future__ import annotations

from typing import Protocol


class TrainingSide(Protocol):
    """The trainer ranks of a cell. They live as long as the cell: only their memory comes and goes."""

    async def start(self) -> None:
        """Bring the ranks up, at rest."""
        ...

    async def load(self) -> None:
        """Take memory and be ready to claim micro-steps."""
        ...

    async def offload(self) -> None:
        """Claim no more, give up what was claimed, and give memory away."""
        ...

    async def reset(self) -> None:
        """Come to where `offload` leads, from wherever it is: a process that died is started again."""
        ...

    def problem(self) -> str:
        """What is wrong with the trainer now, such that it cannot train; "" where nothing is known."""
        ...

    async def close(self) -> None:
        """End for good. Never raises."""
        ...


class ServingSide(Protocol):
    """The engine of a cell. It lives as long as the cell: only its memory and its requests come and go."""

    @property
    def name(self) -> str:
        """The engine's name in the pool; "" while there is none."""
        ...

    async def start(self) -> None:
        """Bring the engine up with the weights that are served now, and let it take requests."""
        ...

    async def drain(self) -> None:
        """Take no new requests; what is in flight goes on elsewhere."""
        ...

    def readmit(self) -> bool:
        """Take requests again after a `drain` that was broken off; return False where the weights are old by now."""
        ...

    async def release(self) -> None:
        """Give memory away, where the engine can."""
        ...

    async def restore(self) -> None:
        """Take memory back."""
        ...

    async def admit(self) -> None:
        """Get the weights that are served now, and take requests."""
        ...

    async def revive(self) -> None:
        """Come to where `admit` leads, from wherever it is: an engine that died or hangs is started again."""
        ...

    def problem(self) -> str:
        """What is wrong with the engine now, such that it cannot serve; "" where nothing is known."""
        ...

    async def close(self) -> None:
        """End for good. Never raises."""
        ...
