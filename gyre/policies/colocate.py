"""Colocate: all elastic cells serve, then all train, then all serve again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ..cluster import CellRole
from ..step import StepPhase
from .base import Move, Policy, PolicySettings, move_all

if TYPE_CHECKING:
    from ..view import View


class Colocate(Policy):
    """Every elastic cell changes roles together, when the burst's groups are ready, and back after the publish.

    With streaming and standalone engines the cells leave earlier: when the standalone engines alone can hold the
    executions that are left and a first group is ready to train on.
    """

    name: ClassVar[str] = "colocate"

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self._role = CellRole.SERVING

    def moves(self, view: View) -> Sequence[Move]:
        """All to training when the burst can be trained; all to serving at the boundary, unless the next is ready."""
        if view.at_boundary:
            self._role = CellRole.SERVING
        if self._can_train(view):
            self._role = CellRole.TRAINING
        elif self._starves(view):
            self._role = CellRole.SERVING
        return move_all(view.cells, self._role)

    def _can_train(self, view: View) -> bool:
        if view.exhausted:
            return view.ready_groups > 0
        needed = self.needed_groups(view)
        if view.ready_groups >= needed and view.takeable_groups >= min(needed, view.groups_per_step - view.step_groups):
            return view.ready_groups > 0
        return self.settings.streaming and view.ready_groups > 0 and view.water_level <= view.standalone_capacity

    def _starves(self, view: View) -> bool:
        """Whether the next step cannot open before groups become ready that nobody serves while all cells train."""
        waits = view.step_phase is StepPhase.IDLE and view.core.training and not self.opens(view)
        return waits and view.water_level > view.standalone_capacity
