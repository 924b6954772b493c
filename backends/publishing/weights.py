"""Weights of a version, and how they get to an engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .control import EngineControl


class WeightTransfer(Protocol):
    """Carries weights to an engine that is paused and in a session of changes. May be used for many, and again."""

    async def send(self, control: EngineControl, version: int, *, flush: bool, within_s: float) -> None:
        """Put all weights there under the name `version`; `flush` empties the KV cache with it.

        Raises:
            ControlError: the engine did not say that it has them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Weights:
    """What is to be served."""

    version: int  # updates in them
    folder: Path  # that Hugging Face's loaders read; an engine that starts loads it. It stays while this is served
    transfer: WeightTransfer


@dataclass(frozen=True, slots=True)
class FromDisk:
    """Engines read a folder, which all of them must see under this path."""

    folder: Path  # that Hugging Face's loaders read

    async def send(self, control: EngineControl, version: int, *, flush: bool, within_s: float) -> None:
        """See `WeightTransfer.send`."""
        body = {
            "model_path": str(self.folder),
            "weight_version": str(version),
            "flush_cache": flush,
            "abort_all_requests": False,
        }
        await control.call("/update_weights_from_disk", body, within_s)


def on_disk(version: int, folder: Path) -> Weights:
    """Return weights that engines read from a folder."""
    return Weights(version, folder, FromDisk(folder))
