"""The training side of cells: the core's trainer, and satellites that join its steps."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from .satellites import RunningSatellite, SatelliteLaunch, SatelliteLostError

if TYPE_CHECKING:
    from gyre.backends.training.elastic_training import ElasticTraining

_log = logging.getLogger(__name__)


class CoreSide:
    """See `TrainingSide`. The core's trainer is the run's own: it is up before cells are, and outlives them."""

    def __init__(self, training: ElasticTraining) -> None:
        """Take the run's trainer."""
        self._training: Final = training

    async def start(self) -> None:
        """See `TrainingSide.start`."""

    async def load(self) -> None:
        """See `TrainingSide.load`."""
        self._training.train()

    async def offload(self) -> None:
        """See `TrainingSide.offload`. The gradients that were summed stay."""
        await self._training.rest()

    async def reset(self) -> None:
        """See `TrainingSide.reset`. One that has failed stays so, and the run ends with what it is told next."""
        await self._training.rest()

    def problem(self) -> str:
        """See `TrainingSide.problem`."""
        failure = self._training.failure
        return f"the core's trainer has failed: {failure}" if failure else ""

    async def close(self) -> None:
        """See `TrainingSide.close`. The trainer is closed by the run."""


class SatelliteSide:
    """See `TrainingSide`. The trainer is built once, and again only after it died or does not obey."""

    def __init__(
        self, launch: SatelliteLaunch, training: ElasticTraining, cell: int, *, leave_s: float = 300.0
    ) -> None:
        """`leave_s`: most seconds for a leave, which includes a micro-step; a slower trainer is ended."""
        self._launch = launch
        self._training = training
        self._cell = cell
        self._leave_s = leave_s
        self._up: RunningSatellite | None = None

    @property
    def satellite(self) -> RunningSatellite | None:
        """Its trainer; None while there is none."""
        return self._up

    async def start(self) -> None:
        """See `TrainingSide.start`.

        Raises:
            SatelliteLostError: the trainer cannot be built.
            InputError: it trains another model than the core.
        """
        self._up = await self._launch(self._cell, self._training.address)
        self._training.check_satellite(self._up.size, self._up.layout)

    async def load(self) -> None:
        """See `TrainingSide.load`. A trainer that has died while the cell served is started again first."""
        if self._up is None or self._up.problem:
            await self.reset()
        assert self._up is not None
        await self._up.join()

    async def offload(self) -> None:
        """See `TrainingSide.offload`. One that does not leave in time is ended; the next `load` starts another."""
        if self._up is not None and (reason := await self._trouble_in_leaving(self._up)):
            _log.warning("a trainer is ended", extra={"cell": self._cell, "reason": reason})
            await self._let_go()
        await self._training.leave(self._cell)

    async def reset(self) -> None:
        """See `TrainingSide.reset`. The core has its micro-steps back before another trainer is started."""
        await self.offload()
        if self._up is None:
            await self.start()

    def problem(self) -> str:
        """See `TrainingSide.problem`."""
        return "its trainer is not there" if self._up is None else self._up.problem

    async def close(self) -> None:
        """See `TrainingSide.close`."""
        await self._let_go()

    async def _trouble_in_leaving(self, up: RunningSatellite) -> str:
        """Let a trainer leave; return why it does not, "" where it has."""
        if up.problem:
            return up.problem
        try:
            async with asyncio.timeout(self._leave_s):
                await up.leave()
        except TimeoutError:
            return f"it has not left in {self._leave_s:g} s"
        except SatelliteLostError as error:
            return str(error)
        return ""

    async def _let_go(self) -> None:
        up, self._up = self._up, None
        if up is not None:
            await up.end()
