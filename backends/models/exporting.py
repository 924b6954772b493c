"""A model's weights as a folder that transformers and SGLang load."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from .config_file import read_config
from .gathering import gathered
from .model import Model
from .tensor_table import hub_shapes
from .writing import SHARD_BYTES, carry_from, write_hub_folder


def export(
    model: Model, out: Path, source: Path, *, dtype: torch.dtype | None = None, shard_bytes: int = SHARD_BYTES
) -> None:
    """Write `out` from the weights that the ranks of the cell hold; every rank calls it, rank 0 writes.

    Args:
        model: the rank's part.
        out: the folder, replaced whole if it is there; killed at any moment, the old one still stands.
        source: the folder that the model was loaded from: its configuration, tokenizer and the like go along.
        dtype: of the files; None: the model's.
        shard_bytes: most bytes of a file.

    Raises:
        InputError: on rank 0: the system refuses to write, or `source` has gone.
    """
    tensors = gathered(model)
    try:
        if dist.get_rank() == 0:
            write_hub_folder(
                out,
                tensors,
                hub_shapes(model.architecture),
                dtype or model.dtype,
                read_config(source),
                lambda folder: carry_from(source, folder),
                shard_bytes=shard_bytes,
            )
    finally:
        for _ in tensors:  # other ranks send to their end, and rank 0 takes it all: nobody is left waiting
            pass
