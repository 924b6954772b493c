"""What the controller has to know of a run besides its policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .buffer.settings import BufferSettings, OnStale
from .errors import InputError
from .group_settings import GroupSettings
from .policies.base import Dispatch, PolicySettings
from .task_order import TaskOrder


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the controller has to know of a run besides its policy."""

    steps: int  # updates to make
    groups_per_step: int  # B
    group_size: int  # N
    micro_step_tokens: int = 65_536  # most tokens in a micro-step (a longer sample is one of its own)
    score_attempts: int = 3  # evaluations tried before an execution is dropped
    score_timeout_s: float | None = None  # after which an evaluation counts as failed; None: never
    min_group_members: int = 2  # fewer valid members give no group-relative advantage: the group is dropped
    groups: GroupSettings = field(default_factory=GroupSettings)
    buffer: BufferSettings = field(default_factory=BufferSettings)
    seed: int = 0  # of what is drawn: samples to be used again
    keeps_until_checkpoint: bool = False  # trained groups, so that a restart from an older version trains them again

    def refuse_impossible(self, policy: PolicySettings, tasks: TaskOrder | None = None) -> None:
        """Raise InputError where the buffer cannot feed the steps that the policy makes.

        With boundary dispatch the queue holds (phi + mu) * B groups, up to that many of one version, and a step takes
        B: the last of them is trained phi + mu - 1 versions after its dispatch, rounded up.
        """
        most, buffer = self.buffer.max_staleness, self.buffer
        if buffer.capacity_groups is not None and buffer.capacity_groups < self.groups_per_step:
            raise InputError(
                f"buffer.capacity_groups: {buffer.capacity_groups}, but a step takes {self.groups_per_step} groups; "
                f"give {self.groups_per_step} or more, or a smaller groups_per_step"
            )
        if buffer.piles_up:
            raise InputError(
                f"buffer.older_share: {buffer.older_share:g} with max_uses {buffer.max_uses} leaves more used groups "
                "waiting with every step; give max_staleness, capacity_groups or capacity_bytes"
            )
        if most is not None and most < policy.mu - 1:
            raise InputError(
                f"buffer.max_staleness: {most}, but the last step of a burst of mu {policy.mu} trains groups that are "
                f"{policy.mu - 1} versions old; give {policy.mu - 1} or more, or a smaller mu"
            )
        waits = most is not None and buffer.on_stale is OnStale.WAIT
        if most is not None and waits and policy.dispatch is Dispatch.BOUNDARY and policy.phi + policy.mu > most + 1:
            raise InputError(
                f'buffer.max_staleness: {most} cannot be held by waiting (on_stale "wait") with phi {policy.phi:g} and '
                f"mu {policy.mu}: groups are dispatched for {policy.phi + policy.mu:g} steps; give at least "
                f"{math.ceil(policy.phi + policy.mu) - 1}, a smaller phi or mu, or on_stale drop"
            )
        if tasks is not None and buffer.groups_per_task is not None:
            room = tasks.tasks * buffer.groups_per_task
            if room < self.groups_per_step:
                raise InputError(
                    f"buffer.groups_per_task: {buffer.groups_per_task} of each of {tasks.tasks} tasks cannot fill a "
                    f"step of {self.groups_per_step} groups; give more, or a smaller groups_per_step"
                )
