"""What an elastic step needs of a cell's trainer: whole vectors, of all ranks one after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import torch

from gyre.arrays import Float32Array
from gyre.backends.models.exporting import export
from gyre.trajectory.packing import MicroStep

from .checkpoint import load_rank, save_rank
from .figures import Figures
from .trainer import Trainer


class TrainingCell(Protocol):
    """A cell that trains. Its calls block, and come one at a time. N counts the weights of all its ranks."""

    @property
    def size(self) -> int:
        """N."""
        ...

    @property
    def layout(self) -> str:
        """Names the order of the N values: vectors of cells with equal names can be added."""
        ...

    def release(self) -> None:
        """Give GPU memory away; the next call that needs it takes it again. See `Trainer.release`."""
        ...

    def load(self, values: Float32Array, version: int) -> None:
        """Take a snapshot, (N,)."""
        ...

    def values(self) -> Float32Array:
        """Return a copy of the weights, (N,)."""
        ...

    def gradient(self, step: MicroStep) -> tuple[Float32Array, Figures]:
        """See `Trainer.gradient`; (N,)."""
        ...

    def update(self, gradient: Float32Array, executions: int) -> Mapping[str, float]:
        """See `Trainer.update`; `gradient` (N,) may be changed."""
        ...

    def save(self, folder: Path) -> None:
        """Write what every rank holds into a folder."""
        ...

    def restore(self, folder: Path, version: int) -> None:
        """Take up what `save` wrote."""
        ...

    def export(self, out: Path, source: Path) -> None:
        """Write the weights as transformers and SGLang load them; see `gyre.backends.models.exporting.export`."""
        ...


class LocalCell:
    """A rank of a cell, in this process: the whole cell where it has one rank.

    GPU memory is taken again by what computes alone. Weights and moments are read and set where they lie: while an
    engine has the GPU, there is no room for them.
    """

    def __init__(self, trainer: Trainer, rank: int = 0) -> None:
        """Take the rank's trainer."""
        self._trainer: Final = trainer
        self._rank: Final = rank
        self.size: Final = len(trainer.weights)
        self.layout: Final = layout_name([trainer.weights.digest])

    def release(self) -> None:
        """See `TrainingCell.release`."""
        self._trainer.release()

    def load(self, values: Float32Array, version: int) -> None:
        """See `TrainingCell.load`."""
        self._trainer.load(torch.from_numpy(values), version)

    def values(self) -> Float32Array:
        """See `TrainingCell.values`."""
        return _array(self._trainer.weights.values.clone())

    def gradient(self, step: MicroStep) -> tuple[Float32Array, Figures]:
        """See `TrainingCell.gradient`."""
        gradient, figures = self._awake().gradient(step)
        return _array(gradient), figures

    def update(self, gradient: Float32Array, executions: int) -> Mapping[str, float]:
        """See `TrainingCell.update`."""
        trainer = self._awake()
        return trainer.update(torch.from_numpy(gradient).to(trainer.model.device), executions)

    def save(self, folder: Path) -> None:
        """See `TrainingCell.save`."""
        save_rank(self._trainer, folder, self._rank)

    def restore(self, folder: Path, version: int) -> None:
        """See `TrainingCell.restore`."""
        load_rank(self._trainer, folder, self._rank, version)

    def export(self, out: Path, source: Path) -> None:
        """See `TrainingCell.export`."""
        shared = self._trainer.model.layout.ranks > 1  # ranks send each other what lies on their GPUs
        export((self._awake() if shared else self._trainer).model, out, source)

    def _awake(self) -> Trainer:
        """Return the trainer with its memory."""
        self._trainer.restore()
        return self._trainer


def layout_name(digests: list[str]) -> str:
    """Name the order of a cell's values by that of each rank's."""
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]


def _array(values: torch.Tensor) -> Float32Array:
    return np.asarray(values.cpu().numpy(), np.float32)
