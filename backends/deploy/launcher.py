"""Where the processes of a run are started."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from gyre.errors import InputError

from ..cells.satellites import SatelliteLaunch
from ..cells.server import Launch
from ..training.cell import TrainingCell
from .local_launcher import LocalLauncher
from .places import Places
from .settings import DeploySettings


class Launcher(Protocol):
    """Starts engines and trainers, cell by cell."""

    @property
    def host(self) -> str:
        """The address at which satellites find the core, once it is built."""
        ...

    def check(self) -> None:
        """Refuse what cannot be started.

        Raises:
            InputError: a package, a GPU or a CPU is not there.
        """
        ...

    def end_leftovers(self) -> int:
        """End what a killed driver of the run left; return how many processes that was."""
        ...

    def core(self) -> AbstractAsyncContextManager[TrainingCell]:
        """Build the core's trainer for as long as the context lasts."""
        ...

    def engine(self, cell: int) -> Launch:
        """Return what starts the engine of a cell."""
        ...

    def satellite(self, cell: int, key: str, shared: Path | None) -> SatelliteLaunch:
        """Return what starts the trainer of a satellite; `key` is the run's, `shared` where the core's weights are."""
        ...


def make_launcher(settings: DeploySettings, places: Places) -> Launcher:
    """Return what starts the processes of a run.

    Raises:
        InputError: there is no such way here.
    """
    if settings.launch.kind == "local":
        return LocalLauncher(settings, places)
    if find_spec("ray") is None:
        raise InputError('launch.kind: "ray" needs Ray: pip install \'gyre[ray]\', or give "local"')
    from .ray_launcher import RayLauncher

    return RayLauncher(settings, places)
