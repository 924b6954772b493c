"""The cells of a run on the nodes of a Ray cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gyre.errors import InputError

from ..cells.satellites import SatelliteLaunch
from ..cells.server import Launch
from .cell_actor import MakeEngine, MakeSatellite
from .connection import connected
from .placement import Placement
from .remote_actor import ActorLostError
from .remote_cell import RemoteCell
from .seen_file import SeenFile, probe
from .settings import RaySettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RayCells:
    """Starts engines and trainers where Ray has room for their cells."""

    host: str  # this node's address, as other nodes reach it
    first_gpus: str  # of cell 0, as CUDA_VISIBLE_DEVICES names them: the core's trainer takes them too
    _cells: Sequence[RemoteCell]

    def engine(self, cell: int, make: MakeEngine) -> Launch:
        """Return what starts the engine of a cell.

        `make` is given the address at which the engine is to listen. It runs in the cell's actor, on its node, and so
        does the launch that it returns.
        """
        return self._cells[cell].engine(make)

    def satellite(self, cell: int, make: MakeSatellite) -> SatelliteLaunch:
        """Return what starts the trainer of a cell; `make` and the launch that it returns run in the cell's actor."""
        return self._cells[cell].satellite(make)


@asynccontextmanager
async def ray_cells(
    settings: RaySettings, cells: int, *, gpus: int, folder: Path, files: Sequence[Path] = ()
) -> AsyncIterator[RayCells]:
    """Take room for cells in a cluster, with an actor for each, for as long as the context lasts.

    Args:
        settings: the cluster, and what a cell takes of it.
        cells: how many.
        gpus: of each.
        folder: of the run; all nodes must see it under this path.
        files: that all nodes must see under these paths, with the same content.

    Raises:
        InputError: there is no cluster, no room in `place_s`, or a node does not see the files.
    """
    async with connected(settings.address) as host:
        with probe(folder) as probed:
            seen = [probed, *(SeenFile.of(path) for path in files)]
            placement = Placement(settings, cells, gpus, host)
            made = [RemoteCell(cell, placement, settings, seen) for cell in range(cells)]
            try:
                await placement.found()
                yield RayCells(host, await _first_gpus(made), made)
            finally:
                for cell in made:
                    cell.close()
                placement.close()


async def _first_gpus(cells: Sequence[RemoteCell]) -> str:
    """Start an actor for each cell; return the GPUs of the first."""
    try:
        async with asyncio.TaskGroup() as group:
            starting = [group.create_task(cell.up()) for cell in cells]
    except* ActorLostError as errors:
        raise InputError(f"launch.ray: {errors.exceptions[0]}") from errors
    sites = [task.result().site for task in starting]
    _log.info("cells are placed on %s", ", ".join(site.address for site in sites))
    return sites[0].gpus
