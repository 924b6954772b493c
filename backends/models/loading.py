"""Weights of a Hugging Face folder into a rank's part of a model."""

from __future__ import annotations

from pathlib import Path

import torch

from .hub_folder import HubFolder
from .model import Model
from .sharing import assemble
from .tensor_table import hub_shapes, weights


def load(model: Model, folder: Path) -> None:
    """Fill every weight of `model` from the safetensors files in `folder`, and read no more of them than it needs.

    Values are rounded to the model's dtype. Before the first is written, all names and shapes are checked.

    Raises:
        InputError: the folder cannot be read, or its weights are not those of the model.
    """
    ranks, held = model.layout.tensor, dict(model.network.named_parameters())
    architecture = model.architecture
    with HubFolder(folder) as source, torch.no_grad():
        source.check(hub_shapes(architecture), tied=architecture.tied)
        for weight in weights(architecture, model.layout):
            if weight.stage == model.stage:
                part = assemble(weight, architecture.kv_heads, model.tensor_rank, ranks, source.read_part)
                held.pop(weight.core).copy_(part)
    assert not held, f"weights that no rule fills: {sorted(held)}"
