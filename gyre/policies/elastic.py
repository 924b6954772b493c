"""Elastic: QwenGyre's water level moves cells from serving to training in mid-step, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from pydantic import Field

from ..cluster import CellRole, CellState
from ..fleet import Cell
from ..step import StepPhase
from .base import Move, Policy, PolicySettings

if TYPE_CHECKING:
    from ..view import View


class ElasticSettings(PolicySettings):
    """Settings of `elastic`."""

    streaming: bool = Field(default=True, description="train a group's samples as soon as the group is ready")
    join_backlog: float = Field(
        default=0.2, ge=0, description="unclaimed work from which a satellite joins, as a share of the time of a step"
    )
    order: tuple[int, ...] | None = Field(
        default=None, description="satellites in the order in which they move to training; left out: by number"
    )


class Elastic(Policy):
    """Cells join training in a fixed order, core first, as soon as the others can carry what still runs.

    The rules are those of QwenGyre (arXiv 2609.33848), numbered here as there:
    the next cell moves when w(t) <= C_R(t) - C_e and there are samples to feed it (2); moves are serial and latched
    until the burst ends (3); after the publish the core stays only if the next batch is ready and the other cells can
    carry all pending executions (4).

    What feeds a satellite is gyre's choice: work that the cells in training have not claimed and that takes them
    `join_backlog` of the time of a step so far. At 0 any unclaimed micro-step will do; but a move costs two switches
    and lasts for the burst, so a cell that finds nothing to do on arrival is lost to serving.
    """

    name: ClassVar[str] = "elastic"
    Settings: ClassVar[type[PolicySettings]] = ElasticSettings

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        own = cast("ElasticSettings", settings)
        self._order, self._join_backlog = own.order, own.join_backlog
        self._late: set[int] = set()  # cells that were still on their way to training when their burst ended

    def moves(self, view: View) -> Sequence[Move]:
        """The next cell to training, or at a boundary the training prefix back to serving."""
        if view.at_boundary:
            # After a restart with older weights all may be ready and nothing run: no later event would ask again.
            return self._boundary(view) or self._next_to_training(view)
        if self._late:
            arrived = self._send_back_late(view)
            if arrived or self._late:
                return arrived
        if view.step_phase is StepPhase.PUBLISHING:
            return ()
        return self._next_to_training(view)

    def _ordered(self, view: View) -> Sequence[Cell]:
        cells = view.elastic_cells
        if self._order is None:
            return cells
        rank = {index: place for place, index in enumerate(self._order)}
        return (cells[0], *sorted(cells[1:], key=lambda cell: rank.get(cell.index, len(rank) + cell.index)))

    def _next_to_training(self, view: View) -> Sequence[Move]:
        for cell in self._ordered(view):
            if cell.training:
                continue
            # Serial, without gaps: while this cell is on its way, or not back yet, no later one may go.
            if not cell.serving or not self._feeds(view, cell):
                return ()
            fits = view.water_level <= view.serving_capacity - cell.spec.capacity
            return ((cell.index, CellRole.TRAINING),) if fits else ()
        return ()

    def _feeds(self, view: View, cell: Cell) -> bool:
        """Whether there are ready samples that `cell` would train on."""
        if cell is view.core:
            enough = 1 if self.settings.streaming or view.exhausted else view.groups_per_step
            return view.ready_groups >= enough or view.step_phase is StepPhase.OPEN
        if view.step_phase is not StepPhase.OPEN or view.unclaimed_micro_steps == 0:
            return False
        return view.backlog_s >= self._join_backlog * view.step_s

    def _boundary(self, view: View) -> Sequence[Move]:
        core = view.core
        others_capacity = sum(cell.spec.capacity for cell in view.cells if cell is not core)
        core_stays = view.ready_groups >= view.groups_per_step and view.water_level <= others_capacity
        leaving = [
            cell for cell in view.elastic_cells if cell.role is CellRole.TRAINING and not (cell is core and core_stays)
        ]
        self._late = {cell.index for cell in leaving if cell.state is not CellState.TRAINING}
        return [(cell.index, CellRole.SERVING) for cell in leaving if cell.training]

    def _send_back_late(self, view: View) -> Sequence[Move]:
        arrived = [cell.index for cell in view.cells if cell.index in self._late and cell.training]
        self._late = {
            cell.index
            for cell in view.cells
            if cell.index in self._late and cell.role is CellRole.TRAINING and not cell.training
        }
        return [(index, CellRole.SERVING) for index in arrived]
