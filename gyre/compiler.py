"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_jit: Any = njit  # its type hints leave out the options used below
Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile with Numba on first use; the machine code is kept beside the source for later processes."""
    return cast(Function, _jit(cache=True, error_model="numpy")(function))
