"""The processes of a cell, as a run's settings have them, wherever they are started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Final

from gyre.cluster import CellKind
from gyre.errors import InputError

from ..engines.launching import ServerSettings
from ..models.writing import DTYPES
from ..training.cell import TrainingCell
from ..training.cell_recipe import CellRecipe
from ..training.rank_cell import CellLostError, RankCell
from .places import Places
from .settings import DeploySettings

_CPU_TOKENS: Final = 32_768  # of KV: an engine on CPU keeps them in the memory that all share


def check_packages() -> None:
    """Refuse to begin where what cells run is missing.

    Raises:
        InputError: a package is not installed.
    """
    for package, remedy in (("sglang", "docs/models.md says how"), ("megatron.core", "pip install 'gyre[real]'")):
        if not _is_there(package):
            raise InputError(f"{package} is not installed, and cells need it: {remedy}")


@asynccontextmanager
async def built_core(recipe: CellRecipe) -> AsyncIterator[TrainingCell]:
    """Build the core's trainer for as long as the context lasts.

    Its ranks are processes of their own: this one stays quick, and survives them.

    Raises:
        InputError: it cannot be built.
    """
    building = asyncio.create_task(asyncio.to_thread(RankCell, recipe))
    try:
        cell = await asyncio.shield(building)
    except asyncio.CancelledError:
        await asyncio.wait({building})
        if building.exception() is None:
            building.result().close()
        raise
    except CellLostError as error:
        raise InputError(f"the core's trainer cannot be built: {error}") from error
    try:
        yield cell
    finally:
        await asyncio.to_thread(cell.close)


def engine_settings(settings: DeploySettings, places: Places, cell: int, *, first_gpu: int) -> ServerSettings:
    """Return the engine of a cell; `first_gpu` is the number of its first GPU among those that its process sees."""
    cells = settings.cells
    return ServerSettings(
        settings.model.folder,
        places.logs / f"engine-{cell}.log",
        cpu=cells.device == "cpu",
        # Of one that is given twice, SGLang takes the last.
        flags=(*_flags(settings, cell, first_gpu), *settings.engine.flags),
        cpus=settings.cpus(cell),
        environment={"OMP_NUM_THREADS": str(cells.threads), **settings.engine.environment},
    )


def trainer_recipe(settings: DeploySettings, cell: int, *, first_gpu: int) -> CellRecipe:
    """Return the trainer of a cell; `first_gpu` as in `engine_settings`."""
    cells = settings.cells
    return CellRecipe(
        folder=settings.model.folder,
        layout=cells.layout,
        settings=settings.trainer_settings,
        device=cells.device,
        first_gpu=first_gpu,
        dtype=DTYPES[cells.dtype],
        attention=cells.attention,
        threads=cells.threads,
        cpus=settings.cpus(cell),
    )


def _flags(settings: DeploySettings, cell: int, first_gpu: int) -> tuple[str, ...]:
    """What an engine is told where the settings say nothing else."""
    cells = settings.cells
    if cells.device == "cpu":
        running = max(16, cells.capacity)
        # The tokens bound KV memory. What others take of the host while weights load counts against the fraction.
        return "--mem-fraction-static=0.5", f"--max-total-tokens={_CPU_TOKENS}", f"--max-running-requests={running}"
    gives_memory = settings.specs[cell].kind is not CellKind.STANDALONE
    return (
        f"--base-gpu-id={first_gpu}",
        f"--tp={cells.layout.ranks}",
        f"--dtype={cells.dtype}",
        *(("--enable-memory-saver",) if gives_memory else ()),
    )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # what it is part of is not
        return False
