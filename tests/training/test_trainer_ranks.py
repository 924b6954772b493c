"""Cells of two ranks, over gloo, against a cell of one: gradients, norm, update, checkpoint and export."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("megatron.core", reason="training stands on megatron-core")
import torch
from model_kit import make_folder
from safetensors.torch import load_file
from training_kit import group_micro_steps, new_trainer

from gyre.backends.models.layout import Layout
from gyre.backends.models.world import world_of_one
from gyre.backends.training.cell import LocalCell, TrainingCell
from gyre.backends.training.cell_recipe import CellRecipe
from gyre.backends.training.checkpoint import Checkpoints, CheckpointState
from gyre.backends.training.figures import Figures
from gyre.backends.training.rank_cell import CellLostError, RankCell
from gyre.backends.training.settings import ObjectiveSettings, OptimizerSettings, TrainerSettings
from gyre.trajectory.objectives import GrpoSettings

# With this epsilon Adam's first step is g / (|g| + 1): it shows gradients as they are, where a small one shows signs.
SETTINGS = TrainerSettings(
    objective=ObjectiveSettings(kind="grpo", grpo=GrpoSettings(clip_low=0.5, clip_high=1.0, kl_weight=0.1)),
    optimizer=OptimizerSettings(learning_rate=1.0, epsilon=1.0, max_gradient_norm=0.05),
)


def updated(
    cell: TrainingCell, out: Path, source: Path
) -> tuple[Figures, Mapping[str, float], dict[str, torch.Tensor]]:
    """Figures of two micro-steps, what the update says, and the weights after it by their names on the hub."""
    gradients, figures = zip(*(cell.gradient(step) for step in group_micro_steps(0)[:2]), strict=True)
    made = cell.update(np.sum(gradients, axis=0), 2)
    cell.export(out, source)
    return figures[0] + figures[1], made, load_file(out / "model.safetensors")


@pytest.mark.parametrize("layout", [Layout(tensor=2), Layout(pipeline=2), Layout(context=2)], ids=str)
def test_a_cell_of_two_ranks_is_a_cell_of_one(layout: Layout, tmp_path: Path) -> None:
    """With tied embeddings, which both ends of a pipeline hold, and norms of queries and keys, of which ranks of tensor
    parallelism see a part each."""
    folder = make_folder(tmp_path / "model", "qwen3_tied")
    with world_of_one():
        figures, made, expected = updated(LocalCell(new_trainer(folder, SETTINGS)), tmp_path / "one", folder)
    with RankCell(CellRecipe(folder=folder, layout=layout, settings=SETTINGS)) as cell:
        ours, ours_made, found = updated(cell, tmp_path / "two", folder)
        assert ours.tokens == figures.tokens
        assert ours.loss == pytest.approx(figures.loss, abs=1e-6)
        assert ours.differences[0].largest == pytest.approx(figures.differences[0].largest, abs=1e-5)
        assert ours_made["grad_norm"] == pytest.approx(made["grad_norm"], rel=1e-5)
        before = load_file(folder / "model.safetensors")
        for name, weight in expected.items():
            torch.testing.assert_close(found[name], weight, atol=1e-6, rtol=0)
            assert not torch.equal(weight, before[name]), "an update changes every weight"
        checkpoints = Checkpoints(tmp_path / "checkpoints")
        checkpoints.save(cell, CheckpointState(1, cell.layout))
        kept = cell.values()
        updated(cell, tmp_path / "two", folder)
        assert not np.array_equal(cell.values(), kept)
        checkpoints.restore(cell)
        assert np.array_equal(cell.values(), kept)
        os.kill(cell.processes[1], signal.SIGKILL)
        with pytest.raises(CellLostError):
            cell.gradient(group_micro_steps(0)[0])
