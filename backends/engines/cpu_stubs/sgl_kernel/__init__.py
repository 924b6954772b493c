"""Stands in for SGLang's compiled kernels, which have no CPU build on PyPI: every name imports, and none may be called.

Submodules are absent on purpose: SGLang then falls back to plain torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__version__ = "0.0.0"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*_args: Any, **_settings: Any) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU build here")

    kernel.__name__ = name
    return kernel
