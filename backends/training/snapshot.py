"""Where a satellite gets the weights of a step from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from gyre.arrays import Float32Array
from gyre.atomic import write_atomic
from gyre.errors import InputError

from .step_client import CoreLostError
from .step_info import StepInfo, digest_of


class SnapshotSource(Protocol):
    """Gets weights by version. `StepClient` is one, over HTTP."""

    def fetch(self, info: StepInfo) -> Float32Array:
        """Return the weights of a step, (N,), whole and checked.

        Raises:
            CoreLostError: they are not there any more, or came damaged; ask again which step is open.
        """
        ...


class SharedSnapshots:
    """Weights in a folder that cells of one machine share. On `/dev/shm` they lie in memory, once for all of them."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, which must be there."""
        self._folder = folder

    def put(self, version: int, values: Float32Array) -> None:
        """Expose weights, and remove older ones; who reads those keeps what it has opened.

        Raises:
            InputError: the system refuses.
        """
        write_atomic(self._path(version), values.tofile)
        for path in self._folder.glob("weights-*.f32"):
            if path != self._path(version):
                path.unlink(missing_ok=True)

    def fetch(self, info: StepInfo) -> Float32Array:
        """See `SnapshotSource.fetch`."""
        try:
            values = np.fromfile(self._path(info.version), np.float32)
        except OSError as error:
            raise CoreLostError(f"version {info.version} is not shared: {error}") from error
        if digest_of(values) != info.digest:
            raise CoreLostError(f"the shared weights of version {info.version} are damaged, or of another run")
        return values

    def clear(self) -> None:
        """Remove what is there."""
        for path in self._folder.glob("weights-*.f32"):
            path.unlink(missing_ok=True)

    def _path(self, version: int) -> Path:
        return self._folder / f"weights-{version}.f32"


def check_layout(core: tuple[int, str], cell: tuple[int, str]) -> None:
    """Refuse a cell of other weights; each is given by the size of its vectors and their layout.

    Raises:
        InputError: the core's vectors are not this cell's.
    """
    if core != cell:
        raise InputError(
            f"the core's model has {core[0]} weights in layout {core[1]}, this cell's has {cell[0]} in {cell[1]}: "
            "give all cells one model and one layout"
        )
