"""Large arrays that grow.

Each is a mapping of its own. The system gives a mapping memory page by page as it is written to, so reserve costs none,
and takes all of it back when the array is replaced; an allocator would keep holes.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

_GROWTH: Final = 2
_LARGE: Final = 1 << 23  # bytes from which on huge pages (2 MiB where there are any) leave little unused
_Scalar = TypeVar("_Scalar", bound=np.generic)


def reserved(rows: int, scalar: type[_Scalar]) -> npt.NDArray[_Scalar]:
    """Return an array of zeros, (rows,)."""
    options: dict[str, Any] = {}
    if sys.platform != "win32":
        options = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    mapping = mmap.mmap(-1, rows * np.dtype(scalar).itemsize, **options)
    if len(mapping) >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)  # fewer page faults, which would cost more than what fills the pages
    return np.frombuffer(mapping, scalar)


def grown(values: npt.NDArray[_Scalar], used: int, needed: int) -> npt.NDArray[_Scalar]:
    """Return an array of `needed` rows or more that begins with the first `used` of `values`."""
    larger = reserved(max(needed, _GROWTH * len(values)), values.dtype.type)
    larger[:used] = values[:used]
    return larger
