"""A model in a GGUF file, read by transformers: weights rounded out to float32, tokenizer and configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import InputError
from .architecture import Architecture
from .config_file import stated
from .quiet import quiet_bars

_PLAIN = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GgufModel:
    """What the file holds."""

    architecture: Architecture
    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]  # float32, by their names on the hub
    quantised: str | None  # kinds of quantised weights in the file
    carry: Callable[[Path], None]  # writes tokenizer and generation settings into a folder


def read_gguf(path: Path) -> GgufModel:
    """Read a file.

    Raises:
        InputError: it cannot be read, or holds a model that is not supported.
    """
    if not path.is_file():
        raise InputError(f"{path}: is no file; give a GGUF file, or the folder of a Hugging Face model")
    quantised = _quantised(path)
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise InputError("a GGUF file is read with transformers: pip install 'gyre[real]'") from error
    try:
        with quiet_bars():
            tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                path.parent, gguf_file=path.name, dtype=torch.float32, output_loading_info=True
            )
    except Exception as error:  # each of its parts fails in ways of its own
        raise InputError(f"{path}: transformers cannot read it ({error}); give a safetensors folder instead") from error
    model, loading = loaded
    drawn = sorted({*loading["missing_keys"], *(name for name, *_ in loading["mismatched_keys"])})
    if drawn:  # transformers fills them at random
        raise InputError(f"{path}: has no {drawn[0]} that fits (one of {len(drawn)}); give a file of a whole model")
    config = json.loads(model.config.to_json_string())
    config.pop("quantization_config", None)  # of the file; the weights are rounded out
    config.pop("_name_or_path", None)
    config["architectures"] = [type(model).__name__]

    def carry(folder: Path) -> None:
        tokenizer.save_pretrained(folder)
        if model.generation_config is not None:
            with suppress(ValueError):  # settings that contradict each other, as some files have them
                model.generation_config.save_pretrained(folder)

    return GgufModel(
        architecture=stated(path, config),
        config=config,
        weights=model.state_dict(),
        quantised=quantised,
        carry=carry,
    )


def _quantised(path: Path) -> str | None:
    """Return the kinds of quantised weights, most frequent first."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise InputError("a GGUF file is read with gguf and accelerate: pip install 'gyre[real]'") from error
    try:
        kinds = [tensor.tensor_type.name for tensor in GGUFReader(path).tensors]
    except Exception as error:  # numpy's and struct's errors where the file is cut off
        raise InputError(f"{path}: is cut off or no GGUF file ({error}); copy it again") from error
    names = sorted({kind for kind in kinds if kind not in _PLAIN}, key=lambda kind: -kinds.count(kind))
    return ", ".join(names) or None
