"""Folders of the weights that are served: written anew by each process of a run, and no more than two."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="weights are given to engines by aiohttp")
pytest.importorskip("orjson", reason="engines answer in JSON, which orjson reads")

from gyre.atomic import write_folder_atomic
from gyre.backends.cells.trained_weights import TrainedWeights
from gyre.backends.publishing.weights import FromDisk


@dataclass
class Core:
    """Holds a version, of a run's first process or of a later one."""

    version: int = 0
    process: str = "first"

    async def export(self, out: Path, source: Path) -> None:
        write_folder_atomic(out, lambda folder: (folder / "weights").write_text(f"{self.process} {self.version}"))


def source_of(core: Core, tmp_path: Path) -> TrainedWeights:
    return TrainedWeights(core, tmp_path / "served", tmp_path / "model")  # type: ignore[arg-type]


def content(tmp_path: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in (tmp_path / "served").glob("*/weights")}


async def serve(core: Core, source: TrainedWeights, *versions: int) -> None:
    for version in versions:
        core.version = version
        weights = await source.weights(version)
        assert (weights.version, weights.folder.name) == (version, f"version-{version}")
        assert weights.transfer == FromDisk(weights.folder)


def test_the_last_two_stay_and_the_model_itself_is_version_zero(tmp_path: Path) -> None:
    async def run() -> None:
        core = Core()
        source = source_of(core, tmp_path)
        first = await source.newest()
        assert (first.version, first.folder) == (0, tmp_path / "model")
        assert content(tmp_path) == {}
        await serve(core, source, 2, 4, 4, 6)
        assert content(tmp_path) == {"version-4": "first 4", "version-6": "first 6"}

    asyncio.run(run())


def test_after_a_restart_the_core_s_own_weights_are_written_whatever_stands_there(tmp_path: Path) -> None:
    """The core may have gone back, and a number then stands for other weights."""

    async def run() -> None:
        core = Core()
        await serve(core, source_of(core, tmp_path), 4, 6)
        core = Core(5, "second")
        source = source_of(core, tmp_path)
        assert (await source.newest()).folder.name == "version-5"
        assert content(tmp_path) == {"version-5": "second 5"}
        await serve(core, source, 6)
        assert content(tmp_path) == {"version-5": "second 5", "version-6": "second 6"}

    asyncio.run(run())


def test_a_version_that_the_core_does_not_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the core holds 3"):
        asyncio.run(source_of(Core(3), tmp_path).weights(2))
