"""How the kernels of this package are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_jit: Any = njit  # its type hints leave out the options used below
Function = TypeVar("Function", bound=Callable[..., Any])


def inner_kernel(function: Function) -> Function:
    """A kernel that only other kernels call and that handles the model's state; it can make no arrays.

    Numba would count references to each of the state's arrays, atomically, at each call: some three times the cost of
    the simulation itself. Without its run-time library it does not; the caller's references keep the arrays alive.
    Handing over so many arrays costs more than what most of these functions do, so they are inlined.
    """
    options = {"_nrt": False, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, _jit(error_model="numpy", **options)(function))


def entry_kernel(function: Function) -> Function:
    """A kernel on the model's state that Python calls; it can make no arrays either."""
    return cast(Function, _jit(cache=True, error_model="numpy", _nrt=False, no_cfunc_wrapper=True)(function))
