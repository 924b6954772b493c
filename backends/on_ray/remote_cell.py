"""A cell on some node: its actor, and the processes that it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import ray

from ..cells.satellites import RunningSatellite, SatelliteLaunch, SatelliteLostError
from ..cells.server import Launch
from ..engines.launching import LaunchError
from ..publishing.weights import Weights, on_disk
from .cell_actor import BuiltSatellite, CellActor, MakeEngine, MakeSatellite, StartedServer
from .placement import Placement
from .remote_actor import ActorLostError, RemoteActor
from .remote_processes import RemoteSatellite, RemoteServer
from .seen_file import SeenFile
from .settings import RaySettings

_CLOSED: Final = "the run has ended"


class RemoteCell:
    """Has an actor where Ray has room for the cell. One that is lost is followed by another with the next launch."""

    def __init__(self, cell: int, placement: Placement, settings: RaySettings, files: Sequence[SeenFile]) -> None:
        """`files` are what its node must see."""
        self.cell: Final = cell
        self._placement = placement
        self._settings = settings
        self._files = files
        self._actor: RemoteActor | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    async def up(self) -> RemoteActor:
        """Return its actor, a new one where there is none.

        Raises:
            ActorLostError: there is no room for it in `place_s`, or its node does not see the run's files.
        """
        async with self._turn:
            if self._closed:
                raise ActorLostError(_CLOSED)
            if self._actor is None or self._actor.lost:
                self._actor = self._new()
                await self._bring_up(self._actor)
            return self._actor

    def engine(self, make: MakeEngine) -> Launch:
        """Return what starts its engine; `make` runs on the node."""

        async def launch(weights: Weights) -> RemoteServer:
            try:
                actor = await self.up()
                # Tensors would travel with it: an engine that starts reads the folder.
                plain = on_disk(weights.version, weights.folder)
                number, started = await _begun(actor, "start_server", make, plain)
            except ActorLostError as error:
                raise LaunchError(f"cell {self.cell}: {error}") from error
            assert isinstance(started, StartedServer)
            return RemoteServer(actor, number, started)

        return launch

    def satellite(self, make: MakeSatellite) -> SatelliteLaunch:
        """Return what starts its trainer; `make` runs on the node."""

        async def launch(cell: int, core: str) -> RunningSatellite:
            try:
                actor = await self.up()
                number, built = await _begun(actor, "start_satellite", make, cell, core)
            except ActorLostError as error:
                raise SatelliteLostError(f"cell {self.cell}: {error}") from error
            assert isinstance(built, BuiltSatellite)
            return RemoteSatellite(actor, number, built)

        return launch

    def close(self) -> None:
        """End its actor, and all that it holds. After it Ray is asked nothing: it would connect again by itself."""
        self._closed = True
        if self._actor is not None:
            self._actor.lose(_CLOSED)

    def _new(self) -> RemoteActor:
        resources = self._placement.resources
        options = ray.remote(CellActor).options(
            num_cpus=resources["CPU"],
            num_gpus=resources.get("GPU", 0),
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=self._placement.of(self.cell),
        )
        return RemoteActor(options.remote(), self._settings.silent_s)

    async def _bring_up(self, actor: RemoteActor) -> None:
        try:
            await actor.up(self._settings.place_s)
            if unseen := await actor.call("unseen", self._files):
                raise ActorLostError(
                    f"node {actor.site.address} does not see {unseen[0]}, or sees another file there: the model and "
                    "the run's folder must be on a file system that all nodes share, under one path"
                )
        except BaseException as error:
            actor.lose(str(error) or "it is not wanted any more")  # else it would be watched for ever
            raise


async def _begun(actor: RemoteActor, name: str, *arguments: object) -> tuple[int, object]:
    """Start a process; return its number and what is said of it. Failed or cancelled, nothing is left of it."""
    number = actor.number()
    try:
        return number, await actor.call(name, number, *arguments)
    except BaseException:
        await actor.end(number)
        raise
