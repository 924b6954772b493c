"""What a model's folder says, for people and machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .architecture import Architecture
from .config_file import read_architecture
from .hub_folder import HubFolder
from .layout import Layout
from .tensor_table import active_parameters, hub_shapes, parameters

_MOST_TENSOR = 8  # ranks of a machine's fast links


def facts(folder: Path) -> dict[str, Any]:
    """Read configuration and the heads of all weight files; sizes in bytes.

    Raises:
        InputError: the folder is not that of a whole, supported model.
    """
    architecture = read_architecture(folder)
    total = parameters(architecture)
    shapes = hub_shapes(architecture)
    with HubFolder(folder) as weights:
        weights.check(shapes, tied=architecture.tied)
        dtypes = sorted({weights.dtype(name) for name in shapes})
    return {
        "folder": str(folder),
        "architecture": asdict(architecture),
        "dtypes": dtypes,
        "parameters": total,
        "active_parameters": active_parameters(architecture),
        "weights_bytes": {"bfloat16": 2 * total, "float32": 4 * total},
        "kv_bytes_per_token": {
            "bfloat16": architecture.kv_bytes_per_token(2),
            "float32": architecture.kv_bytes_per_token(4),
        },
        "layouts": [{"tensor": fit.tensor, "pipeline": fit.pipeline} for fit in fitting(architecture)],
    }


def fitting(architecture: Architecture) -> Iterator[Layout]:
    """Go through the layouts of tensor ranks, 8 at most, and pipeline stages that share the model out evenly."""
    for tensor in range(1, _MOST_TENSOR + 1):
        for pipeline in range(1, architecture.layers + 1):
            layout = Layout(tensor=tensor, pipeline=pipeline)
            if layout.misfit(architecture) is None:
                yield layout
