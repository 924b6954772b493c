"""Stands in for torchvision, whose build must match torch's: SGLang imports it for images, a text model calls nothing.

Any submodule imports, and any attribute of one is a class that can be named, subclassed and not called.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__version__ = "0.0.0"


class _Absent(type):
    """A class whose attributes are such classes too (`transforms.InterpolationMode.BICUBIC`)."""

    def __getattr__(cls, name: str) -> Any:
        return __getattr__(name)

    def __call__(cls, *_args: Any, **_settings: Any) -> Any:
        raise NotImplementedError(f"torchvision's {cls.__name__} is not installed here")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Absent(name, (), {})


class _Submodules(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith("torchvision.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = __getattr__  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.insert(0, _Submodules())
