"""How a cell's ranks share one model."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ...errors import InputError
from .architecture import Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes of the parallel groups inside a cell. Ranks count tensor first, then context, then pipeline.

    Expert parallelism shares out the ranks of tensor and context: it adds none.
    """

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes below 1.

        Raises:
            InputError: a size is below 1.
        """
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise InputError(f"layout.{field.name} is {getattr(self, field.name)}: give 1 or more")

    @property
    def ranks(self) -> int:
        """Processes of the cell."""
        return self.tensor * self.pipeline * self.context

    def padded_vocabulary(self, architecture: Architecture) -> int:
        """Rows of the embedding: the vocabulary, filled up so that each tensor rank holds as many."""
        return -(-architecture.vocabulary // self.tensor) * self.tensor

    def misfit(self, architecture: Architecture) -> str | None:
        """Say why the model cannot be shared out like this; None if it can."""
        for size, name, number, what in (
            (self.tensor, "tensor", architecture.kv_heads, "key-value heads"),
            (self.tensor, "tensor", architecture.ffn_size, "MLP channels"),
            (self.pipeline, "pipeline", architecture.layers, "layers"),
        ):
            if number % size:
                return f"layout.{name} is {size}, which does not divide the model's {number} {what}"
        if self.expert > 1:
            return f"layout.expert is {self.expert}: experts cannot be shared out among ranks yet"
        if architecture.experts is not None and self.tensor > 1:  # megatron-core wants sequence parallelism for it
            return f"layout.tensor is {self.tensor}: a model with experts cannot be split over tensor ranks yet"
        return None

    def check(self, architecture: Architecture) -> None:
        """Refuse what does not fit.

        Raises:
            InputError: the model cannot be shared out like this.
        """
        why = self.misfit(architecture)
        if why is not None:
            raise InputError(f"{why}; give another size")
