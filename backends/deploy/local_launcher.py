"""Processes of a run on this machine."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import torch

from gyre.errors import InputError
from gyre.scoring.leftovers import kill_marked

from ..cells.local_satellite import local_satellite
from ..cells.satellites import SatelliteLaunch
from ..cells.server import Launch, local_launch
from ..models.core_attention import core_attention
from ..training.cell import TrainingCell
from ..training.cell_recipe import CellRecipe
from .cell_processes import built_core, check_packages, engine_settings, trainer_recipe
from .places import Places
from .settings import DeploySettings

_MARK: Final = "GYRE_RUN"  # in the environment of what a driver starts: the folder of its run


class LocalLauncher:
    """See `Launcher`. Cell n has the GPUs from n times its ranks on, or the CPUs that it is pinned to."""

    def __init__(self, settings: DeploySettings, places: Places) -> None:
        """Take a run's settings and folder. Nothing is started."""
        self._settings = settings
        self._cells = settings.cells
        self._places = places

    @property
    def host(self) -> str:
        """See `Launcher.host`."""
        return "127.0.0.1"

    def check(self) -> None:
        """See `Launcher.check`."""
        check_packages()
        core_attention(self._cells.attention)
        here = os.sched_getaffinity(0)
        for cell, cpus in enumerate(self._cells.pin):
            if absent := sorted(set(cpus) - here):
                raise InputError(
                    f"cells.pin: cell {cell} is given CPU {absent[0]}; this process may use {sorted(here)}"
                )
        if self._cells.device == "cuda":
            needed, found = len(self._settings.specs) * self._cells.layout.ranks, torch.cuda.device_count()
            if found < needed:
                raise InputError(
                    f"cells: {len(self._settings.specs)} cells of {self._cells.layout.ranks} GPUs need {needed}, "
                    f'{found} are here; give fewer cells, a smaller layout, or cells.device = "cpu"'
                )

    def end_leftovers(self) -> int:
        """See `Launcher.end_leftovers`. From now on what this process starts bears the run's mark."""
        os.environ.pop(_MARK, None)
        ended = kill_marked(f"{_MARK}={self._places.root}")
        os.environ[_MARK] = str(self._places.root)
        return ended

    def core(self) -> AbstractAsyncContextManager[TrainingCell]:
        """See `Launcher.core`."""
        return built_core(self._recipe(0))

    def engine(self, cell: int) -> Launch:
        """See `Launcher.engine`."""
        settings = engine_settings(self._settings, self._places, cell, first_gpu=self._first_gpu(cell))
        return local_launch(settings, ready_s=self._settings.engine.ready_s)

    def satellite(self, cell: int, key: str, shared: Path | None) -> SatelliteLaunch:
        """See `Launcher.satellite`."""
        log = self._places.logs / f"trainer-{cell}.log"
        return local_satellite(
            self._recipe(cell), key=key, log=log, shared=shared, ready_s=self._settings.engine.ready_s
        )

    def _first_gpu(self, cell: int) -> int:
        return cell * self._cells.layout.ranks

    def _recipe(self, cell: int) -> CellRecipe:
        return trainer_recipe(self._settings, cell, first_gpu=self._first_gpu(cell))
