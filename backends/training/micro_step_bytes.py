"""A micro-step as bytes: its arrays as safetensors, which nothing can hide code in."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gyre.errors import InputError
from gyre.trajectory.packing import MicroStep, RowMicroStep, TreeMicroStep

_TWICE: Final = "trained_twice"


def to_bytes(step: MicroStep) -> bytes:
    """Return a micro-step's bytes."""
    arrays = {
        field.name: np.ascontiguousarray(getattr(step, field.name)) for field in fields(step) if field.name != _TWICE
    }
    return save({**arrays, _TWICE: np.array([step.trained_twice], np.int64)})


def from_bytes(data: bytes) -> MicroStep:
    """Read what `to_bytes` wrote.

    Raises:
        InputError: it is something else.
    """
    try:
        arrays: dict[str, Any] = load(data)
        arrays[_TWICE] = int(arrays[_TWICE][0])
        return TreeMicroStep(**arrays) if "attend_until" in arrays else RowMicroStep(**arrays)
    except (SafetensorError, KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"a micro-step cannot be read ({error}); all cells must run the same version of gyre"
        ) from error
