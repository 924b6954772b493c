"""Models from elsewhere, checked and written as a folder that gyre trains and SGLang serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...errors import InputError
from .architecture import Architecture
from .config_file import read_architecture, read_config
from .gguf_file import read_gguf
from .hub_folder import HubFolder
from .tensor_table import Shape, hub_shapes
from .writing import DTYPES, SHARD_BYTES, Progress, bytes_of, carry_from, write_hub_folder

_DTYPE_OF_FILE: Mapping[str, torch.dtype] = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What was written."""

    architecture: Architecture
    dtype: torch.dtype
    bytes: int
    quantised: str | None  # kinds of quantised weights that were rounded out, as a GGUF file names them


def import_model(
    source: Path,
    out: Path,
    dtype: str | None = None,
    *,
    progress: Progress | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Imported:
    """Write `out` from a folder of safetensors files, or from a GGUF file; an older folder there is replaced whole.

    Args:
        source: what to read; it is checked before anything is written.
        out: the folder to write.
        dtype: float32 or bfloat16; None: that of the source, float32 where it is neither.
        progress: hears of bytes written.
        shard_bytes: most bytes of a file.

    Raises:
        InputError: the source cannot be read, is not whole, or is of a kind that is not supported.
    """
    if source.is_file() or source.suffix == ".gguf":
        return _from_gguf(source, out, DTYPES[dtype or "float32"], progress, shard_bytes)
    config = read_config(source)
    architecture = read_architecture(source)
    shapes = hub_shapes(architecture)
    with HubFolder(source) as folder:
        folder.check(shapes, tied=architecture.tied)
        kind = DTYPES[dtype] if dtype else _dtype_of(folder, shapes)
        tensors = ((name, folder.read(name)) for name in shapes)
        write_hub_folder(
            out,
            tensors,
            shapes,
            kind,
            config,
            lambda temporary: carry_from(source, temporary),
            shard_bytes=shard_bytes,
            progress=progress,
        )
    return Imported(architecture=architecture, dtype=kind, bytes=bytes_of(shapes, kind), quantised=None)


def _from_gguf(source: Path, out: Path, dtype: torch.dtype, progress: Progress | None, shard_bytes: int) -> Imported:
    model = read_gguf(source)
    shapes = hub_shapes(model.architecture)
    write_hub_folder(
        out,
        _in_order(source, model.weights, shapes),
        shapes,
        dtype,
        model.config,
        model.carry,
        shard_bytes=shard_bytes,
        progress=progress,
    )
    return Imported(
        architecture=model.architecture, dtype=dtype, bytes=bytes_of(shapes, dtype), quantised=model.quantised
    )


def _in_order(source: Path, held: Mapping[str, Tensor], shapes: Mapping[str, Shape]) -> Iterator[tuple[str, Tensor]]:
    for name, shape in shapes.items():
        if name not in held or tuple(held[name].shape) != shape:
            raise InputError(f"{source}: has no {name} of shape {list(shape)}; give a file of a whole model")
        yield name, held[name]


def _dtype_of(folder: HubFolder, shapes: Mapping[str, Shape]) -> torch.dtype:
    """Return the dtype that holds every weight of the folder exactly."""
    kinds = {folder.dtype(name): name for name in shapes}
    for kind, name in kinds.items():
        if kind not in _DTYPE_OF_FILE:
            raise InputError(f"{folder.folder}: {name} is {kind}: give weights in F32, BF16 or F16")
    return torch.bfloat16 if set(kinds) == {"BF16"} else torch.float32
