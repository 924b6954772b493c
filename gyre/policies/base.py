"""What a scheduling policy is: four questions, answered from a read-only view."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from ..cluster import CellRole, CellState
from ..fleet import Cell

if TYPE_CHECKING:
    from ..view import View

Move = tuple[int, CellRole]


class Dispatch(StrEnum):
    """When new groups are dispatched."""

    BOUNDARY = "boundary"  # only at a boundary, up to (phi + mu) * B groups outstanding
    CONTINUOUS = "continuous"  # whenever executions are fewer than in_flight and the queue has room


class PolicySettings(BaseModel):
    """Settings that every policy has. A policy with more subclasses this; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    phi: float = Field(
        default=0.5, ge=0, le=10_000, description="depth of dispatch beyond one burst, in batches of B groups"
    )
    mu: int = Field(default=2, ge=1, le=10_000, description="steps in a burst, between two publishes")
    streaming: bool = Field(default=False, description="train a group's samples as soon as the group is ready")
    dispatch: Dispatch = Field(default=Dispatch.BOUNDARY, description="when new groups are dispatched")
    in_flight: int | None = Field(default=None, ge=1, description="continuous dispatch: executions kept running")
    queue_batches: float | None = Field(
        default=None, gt=0, description="continuous dispatch: most batches of ready groups"
    )

    @property
    def mean_staleness(self) -> float:
        """Mean scheduling staleness of boundary dispatch, phi + (mu - 1)/2, by Little's law."""
        return self.phi + (self.mu - 1) / 2

    def refuse_impossible(self, cells: int, standalone: int) -> None:
        """Raise InputError where the policy cannot work on `cells` that may train and `standalone` engines."""

    def depth_groups(self, groups_per_step: int) -> int:
        """Q_b = (phi + mu) * B, most groups dispatched and not yet consumed under boundary dispatch."""
        return round((self.phi + self.mu) * groups_per_step)


class Policy(ABC):
    """A scheduling policy. Subclass it, override `moves`, and any of the other three questions.

    Methods are called after every event, so they must be quick, must not change the view, and may depend only on it, on
    the settings and on state that earlier calls left on the policy: a journal's replay then gives the same answers.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[PolicySettings]] = PolicySettings

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings

    @abstractmethod
    def moves(self, view: View) -> Sequence[Move]:
        """Which cells take another role now. `view.at_boundary` is true right after a publish and its dispatch."""

    def dispatch(self, view: View) -> int:
        """How many groups to dispatch now."""
        if self.settings.dispatch is Dispatch.CONTINUOUS:
            return self._continuous_dispatch(view)
        if not view.at_boundary:
            return 0
        return max(0, self.settings.depth_groups(view.groups_per_step) - view.outstanding_groups)

    def _continuous_dispatch(self, view: View) -> int:
        """Groups that fill the free places; the last one may wait in part, so that no place stays empty."""
        queue = self.settings.queue_batches
        if queue is not None and view.ready_groups >= queue * view.groups_per_step:
            return 0
        free = (self.settings.in_flight or view.serving_capacity) - view.water_level
        return max(0, -(-free // view.group_size))

    def opens(self, view: View) -> bool:
        """Whether to open a step: the core trains, and enough groups are ready (one, if streaming)."""
        if not view.core.training or view.takeable_groups == 0:
            return False
        return self.settings.streaming or view.takeable_groups >= view.groups_per_step or view.exhausted

    def take(self, view: View) -> int:
        """How many ready groups the open step takes now; the buffer says which. Asked where it may take some."""
        return min(view.takeable_groups, view.groups_per_step - view.step_groups)

    def closes(self, view: View) -> bool:
        """Whether the open step takes no more groups: it has B, or none can come before the next dispatch."""
        return view.step_groups >= view.groups_per_step or view.exhausted

    def ends_burst(self, view: View) -> bool:
        """Whether to publish after this update; `view.burst_steps` counts it already."""
        return view.burst_steps >= self.settings.mu or view.outstanding_groups == 0

    def wake_s(self, view: View) -> float | None:
        """Time (seconds since the run began) at which to ask again though no event happened; None: never."""
        return None

    def needed_groups(self, view: View) -> int:
        """Groups that the rest of this burst still has to take."""
        return (self.settings.mu - view.burst_steps) * view.groups_per_step - view.step_groups


def move_all(cells: Sequence[Cell], role: CellRole) -> list[Move]:
    """Move every settled cell of `cells` that may train and is not in `role` yet."""
    settled = CellState.SERVING if role is CellRole.TRAINING else CellState.TRAINING
    return [(cell.index, role) for cell in cells if cell.state is settled and cell.role is not role and cell.elastic]
