"""The sections of a hardware profile: which numbers each one holds, their units and their limits."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    provenance: str = "not stated"


class Model(_Section):
    """The model itself. Parameters are counts, sizes are bytes over the whole replica (not per GPU)."""

    active_parameters: Positive
    total_parameters: Positive
    weights_bytes: Positive
    kv_bytes_per_token: Positive
    kv_bytes_per_sequence: NonNegative = 0.0  # state of a fixed size, as linear attention keeps

    @model_validator(mode="after")
    def _active_within_total(self) -> Self:
        if self.active_parameters > self.total_parameters:
            raise ValueError("active_parameters exceeds total_parameters")
        return self


class Engine(_Section):
    """One serving engine; a cell holds as many as its GPUs allow."""

    gpus_per_engine: Count
    kv_memory_bytes: Positive  # all GPUs of the engine together
    kv_replication: Count = 1  # copies of each token's KV in the engine: heads replicate when TP > kv heads
    max_running: Count  # sequences that decode together
    max_prefill_tokens: Count  # new tokens in one prefill batch


class Decode(_Section):
    """Step time in ms: a + e*(1 - (1 - k/E)^n) + b*n + c*S, with k of E routed experts per token."""

    a_ms: Positive
    e_ms: NonNegative = 0.0
    experts_per_token: Count = 1
    experts: Count = 1
    b_ms: NonNegative
    c_ms: NonNegative

    @model_validator(mode="after")
    def _chosen_within_all(self) -> Self:
        if self.experts_per_token > self.experts:
            raise ValueError("experts_per_token exceeds experts")
        return self


class Prefill(_Section):
    """Time in ms of N new tokens on a cached prefix of F: p0 + p1*N + p2*N*(F + N/2)."""

    p0_ms: NonNegative
    p1_ms: NonNegative
    p2_ms: NonNegative


class Switch(_Section):
    """A cell's role switch: memory of one role released, of the other restored."""

    to_training_s: NonNegative
    to_serving_s: NonNegative


class Publish(_Section):
    """New weights from the core to all engines."""

    bytes_per_s: Positive | None = None  # effective, over the whole replica; left out: `fixed_s` is all of it
    fixed_s: NonNegative = 0.0
    pull_s: NonNegative | None = None  # for a satellite to take the core's snapshot; left out: as a publish

    @model_validator(mode="after")
    def _takes_time_or_says_so(self) -> Self:
        if self.bytes_per_s is None and "fixed_s" not in self.model_fields_set:
            raise ValueError("give bytes_per_s, fixed_s or both")
        return self


class Training(_Section):
    """Forward and backward of a micro-step, and the optimizer's update.

    Either a measured `tokens_per_s_per_gpu`, or `peak_flops` (FLOP/s of a GPU) with `mfu`.
    """

    tokens_per_s_per_gpu: Positive | None = None
    peak_flops: Positive | None = None
    mfu: Share | None = None
    work_factor: Annotated[float, Field(ge=1)] = 1.0  # all FLOPs of a trained token / those of its forward and backward
    attention_flops_per_pair: NonNegative = 0.0  # forward, a (query, key) pair: 4*full-attention layers*heads*head dim
    micro_step_overhead_s: NonNegative
    update_s: NonNegative
    checkpoint_s: NonNegative = 0.0  # after each update, before the core takes the next step's groups
    offer_s: NonNegative = 0.0  # for the core to make one group's micro-steps, one group after another

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        model_given = self.peak_flops is not None and self.mfu is not None
        parts_given = self.peak_flops is not None or self.mfu is not None
        if (self.tokens_per_s_per_gpu is not None) == parts_given or parts_given != model_given:
            raise ValueError("give either tokens_per_s_per_gpu or both peak_flops and mfu")
        return self


class Migration(_Section):
    """KV that moves between engines by RDMA."""

    nics: Count  # per engine
    nic_bytes_per_s: Positive
    efficiency: Share


class Cell(_Section):
    """The GPUs that change role together: one model replica under one training layout."""

    gpus: Count
