"""The sum of a step's gradients, as they come, or in the order of their micro-steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, Literal, Protocol

import numpy as np

from gyre.arrays import Float32Array, FloatArray
from gyre.atomic import disk_errors

SumKind = Literal["running", "exact"]

_BLOCK: Final = 1 << 22


class GradientSum(Protocol):
    """Adds gradients of N values. Each micro-step comes once."""

    def add(self, number: int, gradient: Float32Array) -> None:
        """Add a micro-step's gradient, (N,)."""
        ...

    def total(self) -> Float32Array:
        """Return the sum, (N,)."""
        ...

    def close(self) -> None:
        """Let memory and files go."""
        ...


class RunningSum:
    """Adds in float64 in the order of arrival: 8 bytes a weight. The order changes the last bits at most."""

    def __init__(self, size: int) -> None:
        """`size` is N."""
        self._sum: FloatArray = np.zeros(size)

    def add(self, number: int, gradient: Float32Array) -> None:
        """See `GradientSum.add`."""
        np.add(self._sum, gradient, out=self._sum)

    def total(self) -> Float32Array:
        """See `GradientSum.total`."""
        return self._sum.astype(np.float32)

    def close(self) -> None:
        """See `GradientSum.close`."""


class ExactSum:
    """Keeps every gradient, and adds in the order of the micro-steps: bit-equal in whatever order they come.

    4 bytes a weight and micro-step: in memory up to `memory_bytes`, what comes after that in files.
    """

    def __init__(self, size: int, folder: Path, memory_bytes: int) -> None:
        """Take N and a folder for what does not fit, whose content is removed.

        Raises:
            InputError: the folder cannot be made.
        """
        self._size = size
        self._folder = folder
        self._room = memory_bytes
        self._held: dict[int, Float32Array] = {}
        shutil.rmtree(folder, ignore_errors=True)
        with disk_errors(folder):
            folder.mkdir(parents=True)

    def add(self, number: int, gradient: Float32Array) -> None:
        """See `GradientSum.add`.

        Raises:
            InputError: the disk is full.
        """
        if gradient.nbytes <= self._room:
            self._room -= gradient.nbytes
            self._held[number] = gradient
            return
        path = self._folder / f"{number}.f32"
        with disk_errors(path):
            gradient.tofile(path)
        self._held[number] = np.memmap(path, np.float32, "r", shape=gradient.shape)

    def total(self) -> Float32Array:
        """See `GradientSum.total`. In blocks, so that little of the files is in memory."""
        out = np.empty(self._size, np.float32)
        ordered = [self._held[number] for number in sorted(self._held)]
        for begin in range(0, self._size, _BLOCK):
            block = np.zeros(min(_BLOCK, self._size - begin))
            for gradient in ordered:
                block += gradient[begin : begin + len(block)]
            out[begin : begin + len(block)] = block
        return out

    def close(self) -> None:
        """See `GradientSum.close`."""
        self._held.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
