"""Rows of different lengths as one rectangle."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_Kind = TypeVar("_Kind", bound=np.generic)


class Side(StrEnum):
    """Where the padding stands."""

    LEFT = "left"
    RIGHT = "right"


def padded(rows: Sequence[npt.NDArray[Any]], side: Side, fill: int, kind: type[_Kind]) -> npt.NDArray[_Kind]:
    """Return R rows as a rectangle (R, longest), filled up with `fill`."""
    rectangle = np.full((len(rows), max(map(len, rows), default=0)), fill, kind)
    for to, row in zip(rectangle, rows, strict=True):
        if side is Side.LEFT:
            to[len(to) - len(row) :] = row
        else:
            to[: len(row)] = row
    return rectangle


def padding_mask(rows: Sequence[npt.NDArray[Any]], side: Side) -> npt.NDArray[np.int64]:
    """Return 1 where `padded` has a value of the rows and 0 where it is filled up, (R, longest)."""
    return padded([np.ones(len(row), np.int64) for row in rows], side, 0, np.int64)
