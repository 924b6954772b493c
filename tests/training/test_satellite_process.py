"""Resident satellites in processes of their own, steered as cells steer them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("megatron.core", reason="training stands on megatron-core")
from model_kit import make_folder
from safetensors.torch import load_file
from training_kit import SETTINGS, Heard, items, new_trainer, offer_all, train_alone, until

from gyre.backends.cells.local_satellite import LocalSatellite, local_satellite
from gyre.backends.cells.satellites import SatelliteLostError
from gyre.backends.cells.training_sides import CoreSide, SatelliteSide
from gyre.backends.models.exporting import export
from gyre.backends.models.layout import Layout
from gyre.backends.models.world import world_of_one
from gyre.backends.training.cell import TrainingCell
from gyre.backends.training.cell_recipe import CellRecipe
from gyre.backends.training.elastic_training import ElasticTraining
from gyre.backends.training.open_cell import open_cell
from gyre.backends.training.settings import ObjectiveSettings, OptimizerSettings, TrainerSettings

KEY = "a-key-that-nobody-may-see"
GROUPS = range(2)
# With this epsilon Adam's first step is g / (|g| + 1): it shows gradients as they are, where a small one shows signs.
PLAIN = TrainerSettings(
    objective=ObjectiveSettings(kind="ppo"),
    optimizer=OptimizerSettings(learning_rate=1.0, epsilon=1.0, max_gradient_norm=0.05),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("process") / "model", "qwen3_tied")


@asynccontextmanager
async def cells_of(
    recipe: CellRecipe, core: TrainingCell, tmp_path: Path, heard: Heard
) -> AsyncIterator[tuple[ElasticTraining, CoreSide, SatelliteSide]]:
    """A core that has started, and a satellite whose trainer is built."""
    training = ElasticTraining(core, tmp_path, items, key=KEY)
    launch = local_satellite(recipe, key=KEY, log=tmp_path / "satellite.log", ready_s=300.0)
    satellite = SatelliteSide(launch, training, 1)
    try:
        await training.start(heard)
        await satellite.start()
        yield training, CoreSide(training), satellite
    finally:
        await training.stop()
        await satellite.close()


def process_of(side: SatelliteSide) -> LocalSatellite:
    assert isinstance(side.satellite, LocalSatellite)
    return side.satellite


def descendants(process: int) -> list[int]:
    threads = Path(f"/proc/{process}/task").iterdir()
    children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    return children + [other for child in children for other in descendants(child)]


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_satellite_joins_leaves_dies_and_comes_back(folder: Path, tmp_path: Path) -> None:
    """What it computes when it is told to leave is finished; killed while it trains, it loses nothing."""
    recipe, heard = CellRecipe(folder=folder, settings=SETTINGS), Heard()

    async def run() -> None:
        with open_cell(recipe) as core:
            async with cells_of(recipe, core, tmp_path, heard) as (training, own, satellite):
                first = process_of(satellite)
                for said in ("cmdline", "environ"):
                    assert KEY.encode() not in Path(f"/proc/{first.pid}/{said}").read_bytes()
                await training.open(0)
                number = await offer_all(training, GROUPS)
                await satellite.load()
                await until(lambda: len(heard.done(1)) >= 2)
                await satellite.offload()
                assert heard.claims(1) == heard.done(1)
                assert satellite.problem() == ""
                await own.load()
                await until(lambda: heard.done(0))
                await own.offload()
                assert heard.claims(0) == heard.done(0)
                assert len(heard.done()) < number

                os.kill(first.pid, signal.SIGSTOP)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await satellite.load()
                first._silent_s = 1.5
                await until(lambda: "silent" in satellite.problem())
                os.kill(first.pid, signal.SIGKILL)
                await until(lambda: "ended" in satellite.problem())
                await satellite.offload()
                await satellite.load()
                assert process_of(satellite) is not first
                await until(lambda: len(heard.done()) == number)
                assert sorted(heard.done()) == list(range(number))
                await training.close(0)
                await training.apply(0)

    asyncio.run(run())


def alone(folder: Path, out: Path) -> None:
    """One process of one rank makes the update."""
    with world_of_one():
        trainer = new_trainer(folder, PLAIN)
        train_alone(trainer, GROUPS)
        export(trainer.model, out, folder)


def test_a_core_and_a_satellite_of_two_ranks_make_the_step_of_one(folder: Path, tmp_path: Path) -> None:
    """Every rank of the satellite ends when the driver does, killed or not."""
    recipe, heard = CellRecipe(folder=folder, layout=Layout(tensor=2), settings=PLAIN), Heard()

    async def run() -> None:
        with open_cell(recipe) as core:
            async with cells_of(recipe, core, tmp_path, heard) as (training, own, satellite):
                await training.open(0)
                for side in (own, satellite):
                    await side.load()
                number = await offer_all(training, GROUPS)
                await until(lambda: len(heard.done()) == number)
                assert heard.done(0)
                assert heard.done(1)
                await training.close(0)
                await training.apply(0)
                await training.export(tmp_path / "made", folder)
                pid = process_of(satellite).pid
                ranks = descendants(pid)
                assert len(ranks) >= 2
                satellite.satellite._process.stdin.close()  # type: ignore[union-attr]  # the kernel does it for the dead
                await until(lambda: not any(map(runs, (pid, *ranks))))
                assert "ended" in satellite.problem()

    asyncio.run(run())
    alone(folder, tmp_path / "alone")
    made, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("made", "alone"))
    assert made.keys() == expected.keys()
    assert max((made[name] - expected[name]).abs().max().item() for name in made) <= 1e-6


def test_a_satellite_that_cannot_be_built_says_why(folder: Path, tmp_path: Path) -> None:
    recipe = CellRecipe(folder=tmp_path / "nothing", settings=SETTINGS)
    launch = local_satellite(recipe, key=KEY, log=tmp_path / "satellite.log", ready_s=300.0)
    with pytest.raises(SatelliteLostError, match="nothing"):
        asyncio.run(asyncio.wait_for(launch(1, "http://127.0.0.1:9"), 300))
