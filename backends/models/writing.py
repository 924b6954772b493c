"""A Hugging Face folder of weights, tokenizer and configuration, written whole or not at all."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors.torch import save_file
from torch import Tensor

from ...atomic import write_folder_atomic
from .config_file import CONFIG
from .hub_folder import INDEX
from .tensor_table import Shape

SHARD_BYTES: Final = 5 << 30
DTYPES: Final[Mapping[str, torch.dtype]] = {"float32": torch.float32, "bfloat16": torch.bfloat16}

CARRIED: Final = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE*",
)
"""What a folder has besides weights and configuration: copied as it is."""

Progress = Callable[[int], None]
"""Hears of bytes written."""


def write_hub_folder(
    out: Path,
    tensors: Iterable[tuple[str, Tensor]],
    shapes: Mapping[str, Shape],
    dtype: torch.dtype,
    config: Mapping[str, Any],
    carry: Callable[[Path], object],
    *,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> None:
    """Write a folder beside `out` and move it there; until then an older one stands, and nothing else is seen.

    Args:
        out: the folder.
        tensors: whole weights, in the order of `shapes`; one file of them is held in memory.
        shapes: of every weight.
        dtype: of the files, float32 or bfloat16; values are rounded to it.
        config: what `config.json` says, but for its dtype.
        carry: writes whatever else belongs there.
        shard_bytes: most bytes of a file, but for a weight above it, which has one of its own.
        progress: hears of bytes written, after each file.

    Raises:
        InputError: the system refuses to write.
    """

    def fill(folder: Path) -> None:
        carry(folder)
        _write_json(folder / CONFIG, {**config, **_dtype_keys(config, dtype)})
        _write_weights(folder, iter(tensors), shapes, dtype, shard_bytes, progress)

    write_folder_atomic(out, fill)


def carry_from(source: Path, folder: Path) -> None:
    """Copy tokenizer, generation settings and licence of `source`."""
    for pattern in CARRIED:
        for path in source.glob(pattern):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)


def bytes_of(shapes: Mapping[str, Shape], dtype: torch.dtype) -> int:
    """Return the bytes of all weights."""
    return sum(math.prod(shape) for shape in shapes.values()) * dtype.itemsize


def _write_weights(
    folder: Path,
    tensors: Iterator[tuple[str, Tensor]],
    shapes: Mapping[str, Shape],
    dtype: torch.dtype,
    shard_bytes: int,
    progress: Progress | None,
) -> None:
    split = split_state_dict_into_shards_factory(
        shapes,  # type: ignore[arg-type]  # only what the next function says of them counts
        get_storage_size=lambda shape: math.prod(shape) * dtype.itemsize,
        get_storage_id=lambda shape: None,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=shard_bytes,
    )
    waiting = {file: set(names) for file, names in split.filename_to_tensors.items()}
    held: dict[str, dict[str, Tensor]] = {file: {} for file in waiting}
    for name, tensor in tensors:
        file = split.tensor_to_filename[name]
        held[file][name] = tensor.to("cpu", dtype, copy=True).contiguous()
        waiting[file].remove(name)
        if not waiting[file]:
            ready = held.pop(file)
            save_file(ready, folder / file, metadata={"format": "pt"})
            (folder / file).chmod(folder.stat().st_mode & 0o666)  # it is made readable by its owner alone
            if progress is not None:
                progress(sum(one.nbytes for one in ready.values()))
    assert not held, f"weights that did not come: {[name for names in waiting.values() for name in names][:3]}"
    if split.is_sharded:
        _write_json(folder / INDEX, {"metadata": split.metadata, "weight_map": split.tensor_to_filename})


def _dtype_keys(config: Mapping[str, Any], dtype: torch.dtype) -> dict[str, str]:
    """Say the dtype under the key that the source has: `torch_dtype` before transformers 5, `dtype` since."""
    name = str(dtype).removeprefix("torch.")
    return {key: name for key in ("dtype", "torch_dtype") if key in config} or {"dtype": name}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
