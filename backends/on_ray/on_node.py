"""What actors are given to start: the processes of a cell, as on a machine of its own."""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..cells.local_satellite import local_satellite
from ..cells.satellites import SatelliteLaunch
from ..cells.server import Launch, local_launch
from ..engines.launching import ServerSettings
from .cell_actor import MakeEngine, MakeSatellite

if TYPE_CHECKING:
    from gyre.backends.training.cell_recipe import CellRecipe


def sglang_on_node(settings: ServerSettings, *, ready_s: float) -> MakeEngine:
    """Return what starts an SGLang server, reached by other nodes, with a key of its own at each start.

    `settings.host` and `settings.key` count for nothing, beside what `local_launch` ignores. The log is a path on the
    node; in a folder that all nodes share it is one file for a cell wherever it runs.
    """
    return partial(_sglang, settings, ready_s)


def satellite_on_node(recipe: CellRecipe, *, key: str, log: Path, ready_s: float) -> MakeSatellite:
    """Return what starts a satellite's trainer, as `local_satellite` does. It gets weights from the core over HTTP."""
    return partial(_satellite, recipe, key, log, ready_s)


def _sglang(settings: ServerSettings, ready_s: float, host: str) -> Launch:
    return local_launch(replace(settings, host=host, key=secrets.token_urlsafe()), ready_s=ready_s)


def _satellite(recipe: CellRecipe, key: str, log: Path, ready_s: float) -> SatelliteLaunch:
    return local_satellite(recipe, key=key, log=log, ready_s=ready_s)
