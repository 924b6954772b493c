"""Processes of a run on the nodes of a Ray cluster. It needs Ray."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from gyre.errors import InputError

from ..cells.satellites import SatelliteLaunch
from ..cells.server import Launch
from ..on_ray.on_node import satellite_on_node, sglang_on_node
from ..on_ray.ray_cells import RayCells, ray_cells
from ..training.cell import TrainingCell
from .cell_processes import built_core, check_packages, engine_settings, trainer_recipe
from .local_launcher import LocalLauncher
from .places import Places
from .settings import DeploySettings

_SEEN_GPUS: Final = "CUDA_VISIBLE_DEVICES"


class RayLauncher:
    """See `Launcher`. The core's trainer runs here, with the GPUs of cell 0; Ray places everything else.

    The processes of a cell see the GPUs of their bundle and no others: the first is always number 0.
    """

    def __init__(self, settings: DeploySettings, places: Places) -> None:
        """Take a run's settings and folder. Nothing is started."""
        self._settings = settings
        self._places = places
        self._cells: RayCells | None = None

    @property
    def host(self) -> str:
        """See `Launcher.host`."""
        return self._ray.host

    def check(self) -> None:
        """See `Launcher.check`. What other nodes have shows when their actors start."""
        check_packages()
        if self._settings.cells.pin:
            raise InputError('cells.pin: Ray places cells; leave it out, or give launch.kind = "local"')

    def end_leftovers(self) -> int:
        """See `Launcher.end_leftovers`. What ran on other nodes Ray has ended with the driver."""
        return LocalLauncher(self._settings, self._places).end_leftovers()

    @asynccontextmanager
    async def core(self) -> AsyncIterator[TrainingCell]:
        """See `Launcher.core`. The cluster is there for as long as the core is."""
        settings = self._settings
        async with ray_cells(
            settings.launch.ray,
            len(settings.specs),
            gpus=settings.cells.layout.ranks if settings.cells.device == "cuda" else 0,
            folder=self._places.weights,
            files=(settings.model.folder / "config.json",),
        ) as self._cells:
            with _seeing(self._cells.first_gpus):
                async with built_core(trainer_recipe(settings, 0, first_gpu=0)) as core:
                    yield core

    def engine(self, cell: int) -> Launch:
        """See `Launcher.engine`."""
        settings = engine_settings(self._settings, self._places, cell, first_gpu=0)
        return self._ray.engine(cell, sglang_on_node(settings, ready_s=self._settings.engine.ready_s))

    def satellite(self, cell: int, key: str, shared: Path | None) -> SatelliteLaunch:
        """See `Launcher.satellite`. Weights come over HTTP: `shared` is a folder of this machine."""
        recipe = trainer_recipe(self._settings, cell, first_gpu=0)
        log = self._places.logs / f"trainer-{cell}.log"
        ready_s = self._settings.engine.ready_s
        return self._ray.satellite(cell, satellite_on_node(recipe, key=key, log=log, ready_s=ready_s))

    @property
    def _ray(self) -> RayCells:
        if self._cells is None:
            raise RuntimeError("cells are placed when the core is built")
        return self._cells


@contextmanager
def _seeing(gpus: str) -> Iterator[None]:
    """Let what this process starts see the GPUs that Ray gave to cell 0: this process itself uses none."""
    before = os.environ.get(_SEEN_GPUS)
    os.environ[_SEEN_GPUS] = gpus
    try:
        yield
    finally:
        os.environ.pop(_SEEN_GPUS)
        if before is not None:
            os.environ[_SEEN_GPUS] = before
