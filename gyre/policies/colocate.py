"""Colocate: all elastic cells serve, then all train, then all serve again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ..cluster import CellRole
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
        return move_all(view.cells, self._role)

    def _can_train(self, view: View) -> bool:
        if view.exhausted or view.ready_groups >= self.needed_groups(view):
            return view.ready_groups > 0
        return self.settings.streaming and view.ready_groups > 0 and view.water_level <= view.standalone_capacity
