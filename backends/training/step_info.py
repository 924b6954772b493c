"""What a cell must know to join a step."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Final, Self

from gyre.arrays import Float32Array

DIGEST_HEADER: Final = "X-Gyre-Digest"
FIGURES_HEADER: Final = "X-Gyre-Figures"
MICRO_STEP_HEADER: Final = "X-Gyre-Micro-Step"


@dataclass(frozen=True, slots=True)
class StepInfo:
    """An open step. Its weights are the snapshot `version`, of `size` values of float32 with this SHA-256."""

    attempt: str
    step: int
    version: int
    size: int
    layout: str  # see `TrainingCell.layout`
    digest: str

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


def raw_bytes(values: Float32Array) -> memoryview:
    """Return the memory of values that lie side by side."""
    return values.data.cast("B")


def digest_of(values: Float32Array) -> str:
    """Return the SHA-256 of the values as they lie in memory, in hexadecimal."""
    return hashlib.sha256(raw_bytes(values)).hexdigest()
