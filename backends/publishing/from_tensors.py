"""Weights handed to engines of the same machine as shared memory, with no file between."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Final

import torch
from torch import multiprocessing

from .control import EngineControl


class FromTensors:
    """Weights by their Hugging Face names; they must not change before every engine has them.

    Needs SGLang in this process, for its form of tensors. `ranks` is the tensor parallelism of each engine: every rank
    gets all weights and takes its part.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], *, ranks: int = 1) -> None:
        self._tensors: Final = [(name, tensor.detach()) for name, tensor in tensors.items()]
        self._ranks = ranks

    async def send(self, control: EngineControl, version: int, *, flush: bool, within_s: float) -> None:
        """See `WeightTransfer.send`."""
        # Serialized for each engine anew: a handle in shared memory can be taken up once.
        payload = await asyncio.to_thread(self._serialized)
        body = {
            "serialized_named_tensors": [payload] * self._ranks,
            "weight_version": str(version),
            "flush_cache": flush,
            "abort_all_requests": False,
        }
        await control.call("/update_weights_from_tensor", body, within_s)

    def _serialized(self) -> str:
        from sglang.srt.utils import MultiprocessingSerializer

        # The default, file_descriptor, asks for a key that only child processes have: the server would die of it.
        multiprocessing.set_sharing_strategy("file_system")
        return base64.b64encode(MultiprocessingSerializer.serialize(self._tensors)).decode()
