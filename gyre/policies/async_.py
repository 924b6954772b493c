"""Async: a fixed split; the first cells always train, the others always serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from pydantic import Field

from ..cluster import CellKind, CellRole
from ..errors import InputError
from .base import Move, Policy, PolicySettings, move_all

if TYPE_CHECKING:
    from ..view import View


class AsyncSettings(PolicySettings):
    """Settings of `async`."""

    train_cells: int | None = Field(
        default=None,
        ge=1,
        description="cells that always train; left out: chosen by trying splits in the simulator, 1 in a real run",
    )

    def refuse_impossible(self, cells: int, standalone: int) -> None:
        """See `PolicySettings.refuse_impossible`."""
        train_cells = self.train_cells or 1
        if cells + standalone - train_cells < 1:
            raise InputError(
                f"policy async: train_cells: {train_cells} of {cells} cells train, none is left to serve; "
                "give more cells, fewer train_cells or standalone_engines"
            )
        if train_cells > cells:
            raise InputError(
                f"policy async: train_cells: {train_cells} is more than the {cells} {CellKind.CORE} and satellites"
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
