"""The core's own cell: it computes micro-steps while it is to train, and makes updates in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from gyre.backends.run.worker import Worker

from .cell import TrainingCell
from .elastic_core import ElasticCore
from .elastic_step import Claim, GoneError
from .micro_step_bytes import from_bytes

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_CLAIM_WAIT_S: Final = 10.0
NUMBER: Final = 0  # of the core among the cells


class CoreCell:
    """Does all that is asked of a cell in one thread. While it does not train, GPU memory goes back after each call."""

    def __init__(self, cell: TrainingCell, core: ElasticCore, failed: Callable[[], None]) -> None:
        """Take the cell and the core whose steps it joins; `failed` is called when it cannot go on (`failure`)."""
        self.cell: Final = cell
        self.failure: Exception | None = None
        self._core = core
        self._failed = failed
        self._worker = Worker("trainer")
        self._trains = False
        self._computes = False
        self._loop: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Raise RuntimeError if it has failed."""
        if self.failure is not None:
            raise RuntimeError(f"the core has failed: {self.failure}") from self.failure

    def train(self) -> None:
        """Compute micro-steps from now on."""
        self._trains = True
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._train())

    async def rest(self) -> None:
        """Compute no more, and give memory away; what is being computed is finished first."""
        self._trains = False
        if self._loop is not None:
            if not self._computes:
                self._loop.cancel()  # it waits for work
            await asyncio.wait({self._loop})
        await self._core.leave(NUMBER)
        try:
            await self._worker.run(self.cell.release)
        except Exception as error:  # its ranks are gone
            self.failure = self.failure or error
            _log.error("the core's memory cannot be given away", exc_info=error)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do work of the cell between micro-steps."""

        def done() -> _T:
            result = work()
            if not self._trains:
                self.cell.release()
            return result

        return await self._worker.run(done)

    async def stop(self) -> None:
        """End for good; a micro-step that is being computed is waited for."""
        if self._loop is not None:
            self._loop.cancel()
            with suppress(asyncio.CancelledError):
                await self._loop
        await asyncio.to_thread(self._worker.close)

    async def _train(self) -> None:
        try:
            while self._trains:
                info = await self._core.info(NUMBER, _CLAIM_WAIT_S)
                if info is not None:
                    with suppress(GoneError):
                        await self._train_in(info.attempt)
        except Exception as error:  # satellites go on; the next command for the core ends the run
            self.failure = error
            _log.error("the core cannot train", exc_info=error)
            await self._core.leave(NUMBER)
            self._failed()

    async def _train_in(self, attempt: str) -> None:
        while self._trains:
            claim = await self._core.claim(attempt, NUMBER, _CLAIM_WAIT_S)
            if claim is None:
                continue
            self._computes = True
            try:
                await self._compute(attempt, claim)
            finally:
                self._computes = False

    async def _compute(self, attempt: str, claim: Claim) -> None:
        step = from_bytes(claim.payload)
        gradient, figures = await self._worker.run(lambda: self.cell.gradient(step))
        await self._core.commit(attempt, NUMBER, claim.number, gradient, figures)
