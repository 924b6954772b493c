"""The core's weights, as engines load them."""

from __future__ import annotations

import asyncio
import shutil
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..publishing.weights import Weights, WeightTransfer, on_disk

if TYPE_CHECKING:
    from torch import Tensor

    from gyre.backends.training.elastic_training import ElasticTraining

KEPT: Final = 2  # what is served, and what is about to be


class TransferKind(StrEnum):
    """How weights get to engines."""

    DISK = "disk"  # each engine reads the folder
    TENSORS = "tensors"  # this process reads it and hands it over in shared memory; needs SGLang here


class TrainedWeights:
    """See `WeightSource`. Writes each version that is to be served into a folder `version-N`, and keeps the last ones.

    A folder is there whole or not at all. Version 0 is the model's own folder: nothing was changed yet. What an earlier
    process of the run left is written again: after a restart a number may stand for other weights.
    """

    def __init__(
        self,
        training: ElasticTraining,
        folder: Path,
        model: Path,
        *,
        transfer: TransferKind = TransferKind.DISK,
        engine_ranks: int = 1,
        kept: int | None = KEPT,
    ) -> None:
        """Take the run's trainer.

        Args:
            training: holds the weights.
            folder: for the versions, on a disk or in memory (`/dev/shm`); every engine must see it under this path.
            model: the folder that training began with.
            transfer: how engines get weights.
            engine_ranks: tensor parallelism of each engine; counts for `TransferKind.TENSORS`.
            kept: folders that stay, two or more; None: all, which is what it takes to check log-probabilities later.
        """
        self._training = training
        self._folder = folder
        self._model = model
        self._transfer = transfer
        self._engine_ranks = engine_ranks
        self._kept = kept
        self._made: list[int] = []  # versions, in the order of their making

    async def newest(self) -> Weights:
        """See `WeightSource.newest`."""
        return await self.weights(self._training.version)

    async def weights(self, version: int) -> Weights:
        """See `WeightSource.weights`.

        Raises:
            RuntimeError: the core holds another version.
            InputError: the system refuses to write.
        """
        if version != self._training.version:
            raise RuntimeError(f"version {version} cannot be served: the core holds {self._training.version}")
        out = self._model if version == 0 else self._path(version)
        if version:
            await self._training.export(out, self._model)
            self._made = [*(made for made in self._made if made != version), version]
            await asyncio.to_thread(self._remove_old)
        if self._transfer is TransferKind.DISK:
            return on_disk(version, out)
        return Weights(version, out, await asyncio.to_thread(self._tensors, out))

    def _tensors(self, folder: Path) -> WeightTransfer:
        from safetensors.torch import load_file

        from ..publishing.from_tensors import FromTensors

        tensors: dict[str, Tensor] = {}
        for path in sorted(folder.glob("*.safetensors")):
            tensors |= load_file(path)
        return FromTensors(tensors, ranks=self._engine_ranks)

    def _remove_old(self) -> None:
        if self._kept is None:
            return
        kept = {self._path(version) for version in self._made[-self._kept :]}
        for path in set(self._folder.glob("version-*")) - kept:
            shutil.rmtree(path, ignore_errors=True)

    def _path(self, version: int) -> Path:
        return self._folder / f"version-{version}"
