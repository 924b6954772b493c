"""Checkpoints: training goes on bit by bit as if nothing had happened, and a kill leaves the last one whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("megatron.core", reason="training stands on megatron-core")
import torch
from model_kit import make_folder
from training_kit import forking, group_micro_steps, killed_at_the_end, new_trainer

from gyre.backends.models.world import world_of_one
from gyre.backends.training.cell import LocalCell
from gyre.backends.training.checkpoint import Checkpoints, CheckpointState
from gyre.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("checkpoint") / "model", "qwen3")


@pytest.fixture
def one_world() -> Iterator[None]:
    with world_of_one():
        yield


def train(cell: LocalCell, versions: range) -> None:
    """An update for each version."""
    for version in versions:
        cell.update(cell.gradient(group_micro_steps(version)[0])[0], 1)


def state(cell: LocalCell, version: int) -> CheckpointState:
    return CheckpointState(version, cell.layout, (version,), (("kl", 0.5),), {"epoch": 1, "place": version})


@pytest.mark.usefixtures("one_world")
def test_resumed_training_is_bit_equal(folder: Path, tmp_path: Path) -> None:
    """Weights, moments, warm-up and generator; what the owner gave comes back; two checkpoints stay."""
    cell = LocalCell(new_trainer(folder))
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.restore(cell) is None
    for version in range(1, 4):
        train(cell, range(version - 1, version))
        checkpoints.save(cell, state(cell, version))
    drawn = torch.rand(3)
    train(cell, range(3, 5))
    assert checkpoints.versions == [2, 3]
    resumed = LocalCell(new_trainer(folder))
    assert Checkpoints(tmp_path).restore(resumed) == state(cell, 3)
    assert torch.equal(torch.rand(3), drawn)
    train(resumed, range(3, 5))
    assert np.array_equal(resumed.values(), cell.values())


@pytest.mark.usefixtures("one_world")
@pytest.mark.parametrize("damage", ["torn", "changed", "missing", "foreign"])
def test_what_cannot_be_believed_is_refused(folder: Path, tmp_path: Path, damage: str) -> None:
    cell = LocalCell(new_trainer(folder))
    checkpoints = Checkpoints(tmp_path)
    layout = "another" if damage == "foreign" else cell.layout
    checkpoints.save(cell, CheckpointState(1, layout))
    path = tmp_path / "version-1" / "rank-0.safetensors"
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "torn":
        path.write_bytes(content[:-1])
    elif damage == "changed":
        content[-5] ^= 1
        path.write_bytes(content)
    expected = "of another model or layout" if damage == "foreign" else "damaged or missing; remove this folder"
    with pytest.raises(InputError, match=expected):
        checkpoints.restore(cell)


def save_for_ever(folder: Path, out: Path) -> None:
    """A process that saves one version after the other."""
    with world_of_one():
        cell = LocalCell(new_trainer(folder))
        checkpoints = Checkpoints(out)
        version = max(checkpoints.versions, default=0)
        while True:
            version += 1
            cell.load(np.full(cell.size, version, np.float32), version)
            checkpoints.save(cell, state(cell, version))


@pytest.mark.usefixtures("one_world")
def test_a_kill_at_any_moment_leaves_the_last_one_whole(folder: Path, tmp_path: Path) -> None:
    context = forking()
    cell = LocalCell(new_trainer(folder))
    checkpoints, seen = Checkpoints(tmp_path), 0
    for delay_s in (0.0, 0.004, 0.009):
        process = context.Process(target=save_for_ever, args=(folder, tmp_path))
        with killed_at_the_end([process]):
            process.start()
            while max(checkpoints.versions, default=0) < seen + 3:
                assert process.is_alive()
                time.sleep(0.005)
            time.sleep(delay_s)
        restored = checkpoints.restore(cell)
        assert restored is not None
        assert restored.version >= seen + 3
        assert (cell.values() == restored.version).all()
        assert len(checkpoints.versions) <= 3
        seen = restored.version
