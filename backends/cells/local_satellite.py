"""A satellite's trainer as a process of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .satellites import SatelliteLaunch, SatelliteLostError

if TYPE_CHECKING:
    from gyre.backends.training.cell_recipe import CellRecipe

_MODULE: Final = "gyre.backends.training.satellite_process"


class LocalSatellite:
    """See `RunningSatellite`. It ends by itself when this process does: the pipe to it closes."""

    def __init__(self, process: Process, silent_s: float) -> None:
        """Take a process that was given its orders; `silent_s` without a word are too long."""
        self._process: Final = process
        self._silent_s = silent_s
        self._heard_s = time.monotonic()
        self._ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._commands = 0
        self._reason = ""
        self._ended = False
        self._listening = asyncio.create_task(self._listen())
        self.size = 0
        self.layout = ""

    @property
    def pid(self) -> int:
        """Its process, which leads a group of its own."""
        return self._process.pid

    @property
    def problem(self) -> str:
        """See `RunningSatellite.problem`."""
        if self._ended:
            return self._reason or "its trainer's process has ended"
        if time.monotonic() - self._heard_s > self._silent_s:
            return f"its trainer has been silent for {self._silent_s:g} s"
        return ""

    async def built(self) -> None:
        """Return when its trainer is built.

        Raises:
            SatelliteLostError: it could not be.
        """
        ready = await self._ready
        self.size, self.layout = ready["size"], ready["layout"]

    async def join(self) -> None:
        """See `RunningSatellite.join`."""
        await self._command("join")

    async def leave(self) -> None:
        """See `RunningSatellite.leave`."""
        await self._command("leave")

    async def end(self) -> None:
        """See `RunningSatellite.end`. It is killed: what it holds is of no use to anybody."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._listening

    async def _command(self, name: str) -> None:
        if self._ended:
            raise SatelliteLostError(self.problem)
        self._commands += 1
        number = self._commands
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_line({"do": name, "id": number}))
            await answer
        finally:
            del self._answers[number]

    async def _listen(self) -> None:
        """Read what it says until it ends."""
        assert self._process.stdout is not None
        with suppress(ConnectionError, ValueError):  # who does not keep to the form is of no more use than the dead
            async for line in self._process.stdout:
                self._heard_s = time.monotonic()
                self._hear(json.loads(line))
        self._ended = True
        error = SatelliteLostError(self.problem)
        unheard: list[asyncio.Future[Any]] = [self._ready, *self._answers.values()]
        for waiting in unheard:
            if not waiting.done():
                waiting.set_exception(error)
        if not self._ready.cancelled():
            self._ready.exception()  # perhaps nobody waits for it any more

    def _hear(self, said: dict[str, Any]) -> None:
        match said:
            case {"said": "ready"} if not self._ready.done():
                self._ready.set_result(said)
            case {"said": "failed", "reason": str(reason)}:
                self._reason = f"its trainer has failed: {reason}"
            case {"done": int(number)}:
                answer = self._answers.get(number)
                if answer is not None and not answer.done():  # who asked may have given up
                    answer.set_result(None)


def local_satellite(
    recipe: CellRecipe,
    *,
    key: str,
    log: Path,
    shared: Path | None = None,
    cpus: Sequence[int] = (),
    ready_s: float = 600.0,
    silent_s: float = 60.0,
) -> SatelliteLaunch:
    """Return what starts a cell's trainer on this machine.

    Args:
        recipe: what it builds.
        key: the run's, for the core's service; it goes through the pipe and nowhere else.
        log: a file at whose end its messages go.
        shared: the folder where the core exposes its weights (`SharedSnapshots`); None: they come over HTTP.
        cpus: that it and its ranks may use; none: all.
        ready_s: it must be built within this.
        silent_s: it sends a sign of life each second; without one for so long it counts as frozen.
    """

    async def launch(cell: int, address: str) -> LocalSatellite:
        from gyre.backends.training.satellite_orders import SatelliteOrders

        orders = SatelliteOrders(recipe=recipe, cell=cell, address=address, key=key, shared=shared, cpus=tuple(cpus))
        with log.open("ab") as messages:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _MODULE),
                env=_environment(recipe),
                stdin=PIPE,
                stdout=PIPE,
                stderr=messages,
                start_new_session=True,
            )
        satellite = LocalSatellite(process, silent_s)
        try:
            assert process.stdin is not None
            process.stdin.write(orders.to_line().encode() + b"\n")
            async with asyncio.timeout(ready_s):
                await satellite.built()
        except BaseException as error:
            await satellite.end()
            if isinstance(error, TimeoutError):
                raise SatelliteLostError(
                    f"the trainer of cell {cell} was not built in {ready_s:g} s; see {log}"
                ) from error
            raise
        return satellite

    return launch


def _environment(recipe: CellRecipe) -> dict[str, str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if recipe.device == "cpu":
        environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(recipe.threads)}
    return environment


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"
