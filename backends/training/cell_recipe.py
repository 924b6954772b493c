"""What the ranks of a cell build, and how a rank does it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import PlainSerializer, PlainValidator

from gyre.backends.models.config_file import read_architecture
from gyre.backends.models.layout import Layout
from gyre.backends.models.loading import load
from gyre.backends.models.model import build
from gyre.backends.models.world import join_world
from gyre.backends.models.writing import DTYPES

from .cell import LocalCell
from .settings import TrainerSettings
from .trainer import Trainer


def _dtype(value: Any) -> torch.dtype:
    found = DTYPES.get(value, value)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{value!r} is no dtype; give one of {', '.join(DTYPES)}")
    return found


DType = Annotated[torch.dtype, PlainValidator(_dtype), PlainSerializer(lambda dtype: str(dtype).removeprefix("torch."))]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRecipe:
    """What the ranks of a cell build."""

    folder: Path  # of the model, as Hugging Face has it
    layout: Layout = field(default_factory=Layout)
    settings: TrainerSettings = field(default_factory=TrainerSettings)
    device: str = "cpu"  # or "cuda": rank r takes GPU `first_gpu` + r
    first_gpu: int = 0
    dtype: DType = torch.float32
    attention: str = "sdpa"
    threads: int = 1  # of each rank's CPU work
    cpus: tuple[int, ...] = ()  # that ranks may use, each in a process of its own; none: all
    options: Mapping[str, Any] = field(default_factory=dict)  # of `gyre.backends.models.model.build`


def built_rank(recipe: CellRecipe, rank: int = 0, store: Any = None) -> LocalCell:
    """Join the cell's world in this process, and build and load a rank; `store` as in `join_world`.

    Raises:
        InputError: the layout does not fit the model, or the folder cannot be read.
    """
    if recipe.cpus:
        os.sched_setaffinity(0, recipe.cpus)
    torch.set_num_threads(recipe.threads)
    device = "cpu" if recipe.device == "cpu" else f"{recipe.device}:{recipe.first_gpu + rank}"
    join_world(recipe.layout, rank=rank, store=store, device=device)
    architecture = read_architecture(recipe.folder)
    model = build(
        architecture,
        recipe.layout,
        device,
        recipe.dtype,
        attention=recipe.attention,
        initialize=False,
        **recipe.options,
    )
    load(model, recipe.folder)
    return LocalCell(Trainer(model, recipe.settings), rank)
