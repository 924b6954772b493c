"""Array types, and arithmetic on CSR rows: R rows of values in one array, row r from `starts[r]` to `starts[r + 1]`."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]
FloatArray = npt.NDArray[np.float64]

_Summed = TypeVar("_Summed", np.int64, np.float64)


def row_starts(counts: npt.NDArray[np.integer]) -> Int64Array:
    """CSR offsets (R + 1) of rows that hold `counts` (R) values each."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def row_sums(values: npt.NDArray[_Summed], starts: Int64Array) -> npt.NDArray[_Summed]:
    """Sums of `values` over CSR rows, (R,); `starts` holds the R + 1 offsets."""
    totals = np.concatenate((np.zeros(1, values.dtype), np.cumsum(values)))
    sums: npt.NDArray[_Summed] = totals[starts[1:]] - totals[starts[:-1]]
    return sums


def common_prefix(one: Int32Array, other: Int32Array) -> int:
    """Return how many leading values two arrays share."""
    length = min(len(one), len(other))
    start, block = 0, 1 << 10  # blocks grow, so that arrays which part early are not compared whole
    while start < length:
        end = min(start + block, length)
        different = one[start:end] != other[start:end]
        first = int(different.argmax())
        if different[first]:
            return start + first
        start, block = end, 4 * block
    return length
