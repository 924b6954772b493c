"""When a cell's trainer takes GPU memory: for what computes, and for nothing else. A CPU stands for both devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("megatron.core", reason="training stands on megatron-core")
import torch
from model_kit import loaded, make_folder
from training_kit import SETTINGS, group_micro_steps

from gyre.backends.models.world import world_of_one
from gyre.backends.training.cell import LocalCell
from gyre.backends.training.trainer import Trainer


class WatchedTrainer(Trainer):
    """Counts how often its memory is asked for."""

    asked = 0

    def restore(self) -> None:
        self.asked += 1
        super().restore()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("memory") / "model", "qwen3")


@pytest.fixture
def trainer(folder: Path) -> Iterator[WatchedTrainer]:
    with world_of_one():
        yield WatchedTrainer(loaded(folder), SETTINGS)


def test_a_cell_that_serves_is_read_and_set_without_gpu_memory(
    folder: Path, trainer: WatchedTrainer, tmp_path: Path
) -> None:
    """Snapshots, checkpoints and exports are made while an engine has the GPU, and would not fit beside it."""
    cell = LocalCell(trainer)
    gradient, _ = cell.gradient(group_micro_steps(0)[0])
    cell.update(gradient, 1)
    assert trainer.asked == 2, "what computes needs it"
    cell.release()
    values = cell.values()
    (tmp_path / "saved").mkdir()
    cell.save(tmp_path / "saved")
    cell.restore(tmp_path / "saved", 1)
    cell.load(values, 1)
    cell.export(tmp_path / "exported", folder)
    assert trainer.asked == 2
    again = loaded(tmp_path / "exported")
    for (name, ours), theirs in zip(trainer.model.network.named_parameters(), again.network.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_a_cell_of_one_rank_makes_no_collective(trainer: WatchedTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL takes memory of the GPU at the first one and keeps it while the cell serves."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a collective in a world of one")

    for name in ("all_reduce", "broadcast", "send", "recv", "broadcast_object_list", "all_gather"):
        monkeypatch.setattr(torch.distributed, name, refuse)
    gradient, _ = trainer.gradient(group_micro_steps(0)[0])
    gradient += 1e-3
    norm = float(gradient.double().norm())
    assert trainer.update(gradient, 1)["grad_norm"] == pytest.approx(norm, rel=1e-5)
