"""Checkpoints: what is needed to train on as if nothing had happened."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from gyre.atomic import sync_folder, write_folder_atomic
from gyre.backends.run.sealed import read_sealed, write_sealed
from gyre.errors import InputError

from .optimizer import MOMENTS
from .trainer import Trainer

if TYPE_CHECKING:
    from .cell import TrainingCell

_MANIFEST: Final = "checkpoint.json"
_KIND: Final = "checkpoint"
_REMEDY: Final = "remove this folder to go on from the checkpoint before"


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """What belongs to a checkpoint beside the tensors of its ranks."""

    version: int
    layout: str  # see `TrainingCell.layout`
    groups: tuple[int, ...] = ()  # of the last update
    metrics: tuple[tuple[str, float], ...] = ()  # of the last update
    cursor: Mapping[str, Any] = field(default_factory=dict)  # the place in the data, as its owner gave it


class Checkpoints:
    """A folder with the last few checkpoints, `version-N` each. A process killed at any moment leaves the last whole.

    They are safetensors, one file a rank, with its master weights, both moments and the state of its generator. They
    fit the layout that wrote them; to change it, export the weights (`gyre.backends.models.exporting`) and begin anew.
    megatron-core's dist-checkpointing would reshard, and needs its own optimizer for it.
    """

    def __init__(self, folder: Path, *, keep: int = 2) -> None:
        """`keep` is how many stay.

        Raises:
            InputError: `keep` is below 1.
        """
        if keep < 1:
            raise InputError(f"keep is {keep}: keep 1 checkpoint or more")
        self._folder = folder
        self._keep = keep

    @property
    def versions(self) -> list[int]:
        """Versions of which there is a checkpoint, rising."""
        named = (path.parent.name.partition("-") for path in self._folder.glob(f"version-*/{_MANIFEST}"))
        return sorted(int(number) for _, _, number in named if number.isdecimal())

    def save(self, cell: TrainingCell, state: CheckpointState) -> None:
        """Make `state` and what the cell holds durable; then older checkpoints go.

        Raises:
            InputError: the system refuses.
        """

        def fill(folder: Path) -> None:
            cell.save(folder)
            files = {path.name: _sealed(path) for path in sorted(folder.iterdir())}
            write_sealed(folder / _MANIFEST, _KIND, {**asdict(state), "files": files})

        self._folder.mkdir(parents=True, exist_ok=True)
        write_folder_atomic(self._path(state.version), fill)
        sync_folder(self._folder)
        for version in self.versions[: -self._keep]:
            (self._path(version) / _MANIFEST).unlink()  # from here on it is none: a half-removed one cannot be loaded
            shutil.rmtree(self._path(version), ignore_errors=True)

    def restore(self, cell: TrainingCell) -> CheckpointState | None:
        """Give a cell what the newest checkpoint holds; None if there is none.

        Raises:
            InputError: it is damaged, or of another model or layout.
        """
        versions = self.versions
        if not versions:
            return None
        folder = self._path(versions[-1])
        values = read_sealed(folder / _MANIFEST, _KIND, _REMEDY)
        assert values is not None
        files = values.pop("files")
        try:
            values["groups"] = tuple(values["groups"])
            values["metrics"] = tuple((name, value) for name, value in values["metrics"])
            state = CheckpointState(**values)
        except (TypeError, ValueError, KeyError) as error:
            raise InputError(f"{folder}: written by another version of gyre ({error}); {_REMEDY}") from error
        if state.layout != cell.layout:
            raise InputError(f"{folder}: of another model or layout; give the settings that it was made with")
        for name, expected in files.items():
            if not (folder / name).exists() or _seal(folder / name) != expected:
                raise InputError(f"{folder / name}: damaged or missing; {_REMEDY}")
        cell.restore(folder, state.version)
        return state

    def _path(self, version: int) -> Path:
        return self._folder / f"version-{version}"


def save_rank(trainer: Trainer, folder: Path, rank: int) -> None:
    """Write what a rank holds."""
    tensors = {
        "weights": trainer.weights.values,
        "updates": torch.tensor([trainer.optimizer.updates]),
        "rng": torch.get_rng_state(),
        **trainer.optimizer.state(),
    }
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, _file(folder, rank))


def load_rank(trainer: Trainer, folder: Path, rank: int, version: int) -> None:
    """Take up what `save_rank` wrote.

    Raises:
        InputError: the file is not that of this rank.
    """
    path = _file(folder, rank)
    try:
        with safe_open(path, "pt") as source:
            tensors = {name: source.get_tensor(name) for name in ("weights", "updates", "rng", *MOMENTS)}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error}); {_REMEDY}") from error
    if len(tensors["weights"]) != len(trainer.weights):
        raise InputError(f"{path}: has {len(tensors['weights'])} weights, the model {len(trainer.weights)}; {_REMEDY}")
    trainer.load(tensors["weights"], version)
    trainer.optimizer.restore({name: tensors[name] for name in MOMENTS}, int(tensors["updates"]))
    torch.set_rng_state(tensors["rng"])


def _file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.safetensors"


def _sealed(path: Path) -> dict[str, Any]:
    """Make a file durable, and name its content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return _seal(path)


def _seal(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
