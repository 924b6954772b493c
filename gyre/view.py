"""What a policy may see: a read-only window on the controller's state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .fleet import Cell
from .step import StepPhase

if TYPE_CHECKING:
    from .controller import Controller


class View:
    """Read-only view of a run. Every property costs O(1); nothing here may be changed by a policy."""

    __slots__ = ("_controller",)

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def time_s(self) -> float:
        """Time of the event being handled, seconds since the run began."""
        return self._controller.time_s

    @property
    def version(self) -> int:
        """Weight version at the core: updates applied so far; also the number of the step being trained."""
        return self._controller.version

    @property
    def at_boundary(self) -> bool:
        """Whether this event ended a burst: weights are published, new groups may be dispatched."""
        return self._controller.at_boundary

    @property
    def groups_per_step(self) -> int:
        """B, groups that one step consumes."""
        return self._controller.settings.groups_per_step

    @property
    def group_size(self) -> int:
        """N, executions in a group."""
        return self._controller.settings.group_size

    @property
    def burst_steps(self) -> int:
        """Steps of this burst whose update was applied."""
        return self._controller.burst_steps

    @property
    def water_level(self) -> int:
        """w(t), executions dispatched and not finished."""
        return self._controller.pool.water_level

    @property
    def running_executions(self) -> int:
        """Executions started and not finished."""
        return self._controller.pool.running

    @property
    def ready_groups(self) -> int:
        """Groups ready and not taken by a step."""
        return self._controller.pool.ready_groups

    @property
    def takeable_groups(self) -> int:
        """Ready groups that the open step, or the next one, may take now: at most the places that it has left.

        Fewer than `ready_groups` where the buffer limits groups of one task, or keeps places for groups that must not
        become staler.
        """
        return self._controller.pool.takeable_groups(self._controller.version)

    @property
    def outstanding_groups(self) -> int:
        """Groups dispatched and neither used by an update nor dropped."""
        return self._controller.pool.outstanding_groups

    @property
    def exhausted(self) -> bool:
        """Whether no dispatched group can become ready any more: all are ready, in training or gone."""
        return self._controller.pool.pending_groups == 0

    @property
    def step_phase(self) -> StepPhase:
        """Where the training side is."""
        return self._controller.step.phase

    @property
    def step_groups(self) -> int:
        """Groups that the open step took."""
        return len(self._controller.step.groups)

    @property
    def unclaimed_micro_steps(self) -> int:
        """Micro-steps of the open step that no cell has claimed."""
        return self._controller.step.unclaimed

    @property
    def training_cells(self) -> int:
        """Cells that can claim micro-steps now."""
        return self._controller.fleet.training_cells

    @property
    def backlog_s(self) -> float:
        """Seconds that the training cells need for what is not claimed yet; inf while their pace is not known."""
        unclaimed, mean_s = self.unclaimed_micro_steps, self._controller.step.pace.mean_s
        if unclaimed == 0:
            return 0.0
        return math.inf if mean_s is None or self.training_cells == 0 else unclaimed * mean_s / self.training_cells

    @property
    def step_s(self) -> float:
        """Seconds from one update to the next, on average so far; before the first, the time since the run began."""
        return self.time_s / max(1, self.version)

    @property
    def cells(self) -> Sequence[Cell]:
        """All cells in their fixed order, core first."""
        return self._controller.fleet.cells

    @property
    def elastic_cells(self) -> Sequence[Cell]:
        """Cells that may train, core first."""
        return self._controller.fleet.elastic_cells

    @property
    def core(self) -> Cell:
        """The core cell."""
        return self._controller.fleet.cells[0]

    @property
    def serving_capacity(self) -> int:
        """C_R(t), executions that the cells serving now can carry."""
        return self._controller.fleet.serving_capacity

    @property
    def standalone_capacity(self) -> int:
        """Executions that the standalone engines alone can carry."""
        return self._controller.fleet.standalone_capacity
