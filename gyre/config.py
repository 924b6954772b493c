"""Settings of a run: pydantic models, read from TOML, refused where a key is unknown or a value impossible."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .buffer.settings import BufferSettings
from .controller_settings import ControllerSettings
from .group_settings import GroupSettings
from .policies import Policy, PolicySettings, find_policy
from .toml_file import validated
from .watch.settings import WatchSettings


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class KvOnLeave(StrEnum):
    """What becomes of the KV of requests in flight when their cell leaves serving."""

    RECOMPUTE = "recompute"
    MIGRATE = "migrate"


class KvOnPublish(StrEnum):
    """What becomes of KV when new weights are published."""

    RECOMPUTE = "recompute"  # every sampled token then has log-probabilities of exactly one version
    KEEP = "keep"


class GroupOrder(StrEnum):
    """In which order the workload's groups are dispatched."""

    SHUFFLED = "shuffled"  # a new permutation each epoch, by seed
    TRACE = "trace"  # as they stand in the trace


class WorkloadSettings(_Settings):
    """What is rolled out: a profile to draw from, or a trace to replay."""

    profile: str | None = Field(default=None, description="bundled profile by name, or a profile file")
    trace: str | None = Field(default=None, description="trace folder, or a recording in a format that gyre imports")
    groups: int | None = Field(default=None, ge=1, description="distinct groups drawn from a profile")
    order: GroupOrder = GroupOrder.SHUFFLED

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.profile is None) == (self.trace is None):
            raise ValueError("give either a profile or a trace")
        return self


class ClusterSettings(_Settings):
    """The cells and how they behave."""

    hardware: str = Field(description="bundled hardware profile by name, a file, or a run to measure it on")
    cells: int = Field(ge=1, le=4096, description="cells that may train, the core included")
    gpus_per_cell: int | None = Field(default=None, ge=1, description="GPUs of a cell; left out: as the hardware says")
    standalone_engines: int = Field(default=0, ge=0, le=4096, description="engines that only serve, beside the cells")
    capacity: int | None = Field(
        default=None, ge=1, description="executions a cell serves; left out: from the hardware"
    )
    sequence_tokens_per_s: float | None = Field(
        default=None, gt=0, description="decode speed of one sequence that defines capacity; a profile's nominal speed"
    )
    speed_share: float | None = Field(
        default=None, gt=0, le=1, description="or: share of the unloaded decode speed that defines capacity [0.25]"
    )
    kv_on_leave: KvOnLeave = KvOnLeave.RECOMPUTE
    kv_on_publish: KvOnPublish = KvOnPublish.RECOMPUTE
    evaluators: int | None = Field(default=None, ge=1, description="evaluations at once; left out: as many as come")
    rebalance: Literal[0] | Annotated[float, Field(ge=1)] = Field(
        default=1.5, description="load over the least load at which a thread changes its engine; 0: never, as the proxy"
    )

    @model_validator(mode="after")
    def _one_speed(self) -> Self:
        if self.sequence_tokens_per_s is not None and self.speed_share is not None:
            raise ValueError("give either sequence_tokens_per_s or speed_share")
        return self


class TrainingSettings(_Settings):
    """Steps, batches and samples."""

    steps: int = Field(default=48, ge=1, le=1_000_000, description="optimizer updates to make")
    groups_per_step: int = Field(ge=1, le=100_000, description="B, groups that one step consumes")
    group_size: int = Field(ge=1, le=10_000, description="N, executions in a group")
    micro_step_tokens: int = Field(default=262_144, ge=1, description="most tokens in a micro-step")
    max_paths: int = Field(default=5, ge=1, description="J_max, most paths trained of an execution")
    score_attempts: int = Field(default=3, ge=1, description="evaluations tried before an execution is dropped")
    score_timeout_s: float | None = Field(
        default=None, gt=0, description="after which an evaluation counts as failed; left out: never"
    )
    min_group_members: int = Field(default=2, ge=1, description="fewest members with a valid score in a group")

    @model_validator(mode="after")
    def _members_within_group(self) -> Self:
        if self.group_size > 1 and self.min_group_members > self.group_size:
            raise ValueError(f"min_group_members: {self.min_group_members} is more than group_size, {self.group_size}")
        return self


class LimitSettings(_Settings):
    """Time limits of one execution, from its start."""

    harness_timeout_s: float | None = Field(
        default=None, gt=0, description="the harness ends itself; what it left is scored"
    )
    overall_timeout_s: float | None = Field(default=None, gt=0, description="the execution is ended and dropped")


class FaultSettings(_Settings):
    """Failures that the simulator draws, keyed by the seed."""

    score_failure_rate: float = Field(default=0.0, ge=0, lt=1, description="share of evaluations that fail")
    score_hang_rate: float = Field(default=0.0, ge=0, lt=1, description="share of evaluations that never come back")
    cell_mean_time_between_failures_s: float | None = Field(default=None, gt=0)
    cell_repair_s: float = Field(default=600.0, gt=0)


class SchedulerSettings(_Settings):
    """What a scheduler is told, in a simulated run and in a real one: what was tuned in one goes to the other."""

    policy: str = "elastic"
    policy_settings: dict[str, Any] = Field(default_factory=dict)
    seed: int = Field(default=0, ge=0)
    training: TrainingSettings
    groups: GroupSettings = GroupSettings()
    buffer: BufferSettings = BufferSettings()
    limits: LimitSettings = LimitSettings()
    watch: WatchSettings | None = Field(default=None, description="thresholds of alerts; left out: the defaults")

    @model_validator(mode="after")
    def _groups_can_work(self) -> Self:
        after, size = self.groups.cancel_equal_after, self.training.group_size
        if after is not None and after > size:
            raise ValueError(f"groups.cancel_equal_after: {after} is more than training.group_size, {size}")
        return self

    def make_policy(self) -> Policy:
        """Build the policy; raise InputError for an unknown policy, an unknown key or an impossible value."""
        kind = find_policy(self.policy)
        return kind(validated(kind.Settings, self.policy_settings, f"policy {self.policy}"))

    def resolved(self) -> Self:
        """Return these settings with every default of the policy written out."""
        kind = find_policy(self.policy)
        full: PolicySettings = validated(kind.Settings, self.policy_settings, f"policy {self.policy}")
        return self.model_copy(update={"policy_settings": full.model_dump(mode="json", exclude_none=True)})

    def controller_settings(self) -> ControllerSettings:
        """Return the part that the controller needs."""
        training = self.training
        return ControllerSettings(
            steps=training.steps,
            groups_per_step=training.groups_per_step,
            group_size=training.group_size,
            micro_step_tokens=training.micro_step_tokens,
            score_attempts=training.score_attempts,
            score_timeout_s=training.score_timeout_s,
            min_group_members=training.min_group_members,
            groups=self.groups,
            buffer=self.buffer,
            seed=self.seed,
        )


class RunSettings(SchedulerSettings):
    """Everything that determines a simulated run."""

    workload: WorkloadSettings
    cluster: ClusterSettings
    faults: FaultSettings = FaultSettings()

    @model_validator(mode="after")
    def _hangs_end(self) -> Self:
        if self.faults.score_hang_rate > 0 and self.training.score_timeout_s is None:
            raise ValueError(
                "faults.score_hang_rate: without a time-out a run waits for ever; set training.score_timeout_s"
            )
        return self
