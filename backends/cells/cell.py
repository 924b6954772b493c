"""One cell: its state, and the moves between serving and training."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from gyre.cluster import CELL_MOVES, CellRole, CellSpec, CellState
from gyre.groups import IllegalMoveError

from .sides import ServingSide, TrainingSide

_log = logging.getLogger(__name__)
_SETTLED: Final = {CellRole.SERVING: CellState.SERVING, CellRole.TRAINING: CellState.TRAINING}


class CellBrokenError(Exception):
    """A cell has failed: a step of a move, or one of its sides while it moved."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One step of a move that was done."""

    cell: int
    step: str  # drain, release, load, offload, restore, admit; reset and revive after a failure
    seconds: float


Changed = Callable[[CellState], None]
Record = Callable[[Transfer], None]


class Cell:
    """Moves one at a time, each step of at most `step_s` seconds. Between moves it serves, trains or has failed."""

    def __init__(
        self,
        spec: CellSpec,
        serving: ServingSide,
        training: TrainingSide | None,
        *,
        step_s: float = 900.0,
    ) -> None:
        """`training` is None for a cell that only serves."""
        self.spec: Final = spec
        self.serving: Final = serving
        self.training: Final = training
        self.record: Record = lambda transfer: None  # hears of every step; set by who tells of them
        self._step_s = step_s
        self._state = spec.state
        self._turn = asyncio.Lock()
        self._moving: asyncio.Timeout | None = None
        self._reason = ""

    @property
    def state(self) -> CellState:
        """Where it is."""
        return self._state

    async def switch(self, role: CellRole, changed: Changed) -> None:
        """Move to a role; call `changed` with each state that it enters, a failure left out.

        A cell that has the role, or has failed, stays as it is. Cancelled while it drains, it serves again; cancelled
        later, it has failed: nobody knows how far the step came.

        Raises:
            CellBrokenError: it has failed.
        """
        if role is CellRole.TRAINING and self.training is None:
            raise IllegalMoveError(f"cell {self.spec.cell} is {self.spec.kind} and cannot train")
        async with self._turn:
            if self._state in (CellState.FAILED, _SETTLED[role]):
                return
            move = self._to_training if role is CellRole.TRAINING else self._to_serving
            try:
                await self._unless_broken(move(changed))
            except asyncio.CancelledError:
                self._break_off(changed)
                raise
            except Exception as error:
                self._enter(CellState.FAILED)
                raise CellBrokenError(f"cell {self.spec.cell}: {str(error) or repr(error)}") from error

    async def rehearse(self) -> list[Transfer]:
        """Move to training and back, telling nobody; return the steps. For a cell that serves, and may train.

        Raises:
            CellBrokenError: it has failed.
        """
        done: list[Transfer] = []
        record, self.record = self.record, done.append
        try:
            for role in (CellRole.TRAINING, CellRole.SERVING):
                await self.switch(role, lambda state: None)
        finally:
            self.record = record
        return done

    def fail(self, reason: str) -> bool:
        """Tell it that it cannot go on. Returns whether it has failed by this; a move under way raises instead."""
        if self._state is CellState.FAILED:
            return False
        if self._moving is not None:
            self._reason = self._reason or reason
            if not self._moving.expired():
                self._moving.reschedule(asyncio.get_running_loop().time())
            return False
        self._enter(CellState.FAILED)
        return True

    async def rejoin(self) -> None:
        """Bring a failed cell back to serving, with the weights that are served now. On any error it has failed still.

        Raises:
            CellBrokenError: it could not.
        """
        async with self._turn:
            if self._state is not CellState.FAILED:
                return
            try:
                if self.training is not None:
                    await self._step("reset", self.training.reset())
                await self._step("revive", self.serving.revive())
            except Exception as error:
                raise CellBrokenError(f"cell {self.spec.cell}: {str(error) or repr(error)}") from error
            self._enter(CellState.SERVING)

    async def _unless_broken(self, move: Coroutine[Any, Any, None]) -> None:
        self._reason = ""
        try:
            # A time-out that `fail` sets off: the way to break into a step from outside it.
            async with asyncio.timeout(None) as self._moving:
                await move
            if self._reason:  # told in the moment in which the move ended
                raise CellBrokenError(self._reason)
        except TimeoutError as error:
            raise CellBrokenError(self._reason or repr(error)) from error
        finally:
            self._moving = None

    async def _to_training(self, changed: Changed) -> None:
        assert self.training is not None
        self._enter(CellState.DRAINING, changed)
        await self._step("drain", self.serving.drain())
        self._enter(CellState.TO_TRAINING, changed)
        await self._step("release", self.serving.release())
        await self._step("load", self.training.load())
        self._enter(CellState.TRAINING, changed)

    async def _to_serving(self, changed: Changed) -> None:
        assert self.training is not None
        self._enter(CellState.TO_SERVING, changed)
        await self._step("offload", self.training.offload())
        await self._step("restore", self.serving.restore())
        await self._step("admit", self.serving.admit())
        self._enter(CellState.SERVING, changed)

    def _break_off(self, changed: Changed) -> None:
        if self._state is CellState.DRAINING and not self._reason and self.serving.readmit():
            self._enter(CellState.SERVING, changed)
        else:
            self._enter(CellState.FAILED)

    async def _step(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        begin_s = time.monotonic()
        try:
            async with asyncio.timeout(self._step_s) as limit:
                await work
        except TimeoutError as error:
            if limit.expired():
                raise CellBrokenError(f"{name} took longer than {self._step_s:g} s") from error
            raise CellBrokenError(f"{name}: {error!r}") from error
        seconds = time.monotonic() - begin_s
        _log.info("a step of a move is done", extra={"cell": self.spec.cell, "step": name, "seconds": seconds})
        self.record(Transfer(self.spec.cell, name, seconds))

    def _enter(self, state: CellState, changed: Changed = lambda state: None) -> None:
        if state not in CELL_MOVES[self._state]:
            raise IllegalMoveError(f"cell {self.spec.cell} cannot go from {self._state} to {state}")
        self._state = state
        changed(state)
