"""Async: a fixed split; the first cells always train, the others always serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from pydantic import Field

from ..cluster import CellRole
from .base import Move, Policy, PolicySettings, move_all

if TYPE_CHECKING:
    from ..view import View


class AsyncSettings(PolicySettings):
    """Settings of `async`."""

    train_cells: int | None = Field(
        default=None,
        ge=1,
        description="cells that always train; left out: chosen by trying splits in the simulator",
    )


class Async(Policy):
    """A fixed split of the cells between training and serving."""

    name: ClassVar[str] = "async"
    Settings: ClassVar[type[PolicySettings]] = AsyncSettings

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self._train_cells = cast("AsyncSettings", settings).train_cells or 1

    def moves(self, view: View) -> Sequence[Move]:
        """Bring the training share to training, at the start and when a failed cell returns."""
        return move_all(view.elastic_cells[: self._train_cells], CellRole.TRAINING)
