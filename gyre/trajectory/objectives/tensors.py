"""Arrays of an export as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def to_tensors(data: Any) -> Any:
    """Return nested dicts and lists with each numeric NumPy array as a tensor; the rest stays as it is.

    A tensor shares the array's memory where it is writable, contiguous and aligned.
    """
    if isinstance(data, dict):
        return {name: to_tensors(value) for name, value in data.items()}
    if isinstance(data, list):
        return [to_tensors(value) for value in data]
    if isinstance(data, np.ndarray) and data.dtype.kind in "biuf":
        whole = np.require(data, requirements=("C", "A", "W"))
        return torch.from_numpy(whole)
    return data
