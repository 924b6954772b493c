"""What goes into the serving model and what comes out of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum

from gyre.errors import InputError


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine's constants: a decode iteration, a prefill, the KV budget and the cost to move KV elsewhere.

    A decode iteration of n sequences whose contexts hold S tokens takes a + e (1 - (1 - k/E)^n) + b n + c S seconds; a
    prefill of N new tokens behind F cached ones takes p0 + p1 N + p2 N (F + N / 2).
    """

    step_base_s: float  # a
    step_expert_s: float  # e, 0 for a dense model
    expert_share: float  # k/E, routed experts per token / experts; 0 for a dense model
    step_sequence_s: float  # b, per active sequence
    step_context_s: float  # c, per token of context
    prefill_base_s: float  # p0
    prefill_token_s: float  # p1
    prefill_attention_s: float  # p2
    kv_tokens: int  # KV budget
    kv_sequence_tokens: int  # fixed state of an active sequence, in KV tokens; 0 if none
    max_running: int  # most sequences in a batch
    max_prefill_tokens: int  # new tokens in one prefill batch (one request is always taken)
    migration_s_per_token: float  # KV transfer to another engine; inf: never migrate, recompute

    def check(self, engine: int) -> None:
        """Raise InputError if a constant cannot be used; `engine` names the engine in the message."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= 0 or (math.isinf(value) and field.name != "migration_s_per_token"):
                raise InputError(f"engine {engine}: {field.name} is {value}; give a finite number of at least 0")
        for name in ("kv_tokens", "max_running", "max_prefill_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"engine {engine}: {name} is {getattr(self, name)}; give at least 1")
        if self.expert_share > 1:
            raise InputError(f"engine {engine}: expert_share is {self.expert_share}; give a share between 0 and 1")
        if self.step_base_s + self.step_sequence_s + self.step_context_s <= 0:
            raise InputError(
                f"engine {engine}: a decode step takes no time; set step_base_s, _sequence_s or _context_s"
            )
        if self.prefill_base_s + self.prefill_token_s <= 0:
            raise InputError(f"engine {engine}: a prefill takes no time; set prefill_base_s or prefill_token_s")


class EndReason(StrEnum):
    """Why an execution ended."""

    FINISHED = "finished"
    HARNESS_TIMEOUT = "harness_timeout"
    OVERALL_TIMEOUT = "overall_timeout"


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one execution."""

    time_s: float
    execution: int
    reason: EndReason
    generated_tokens: int  # sampled over the whole execution, cut-off calls included


@dataclass(frozen=True, slots=True)
class EngineMeters:
    """One engine's present state and its totals since the model was made."""

    running: int  # sequences in the batch or in prefill
    waiting: int  # requests in its queue
    kv_tokens: int  # reserved by those in the batch and in prefill, plus idle entries
    busy_s: float  # time in decode iterations and prefills
    prefill_s: float
    decoded_tokens: int  # sampled here, the first token of a prefill included
    prefilled_tokens: int  # new tokens of admitted requests
    cached_tokens: int  # tokens of admitted requests found in the prefix cache (or carried here by migration)
    evicted_tokens: int  # idle tokens dropped to make room
    migrated_tokens: int  # tokens whose KV arrived from another engine
    recomputed_tokens: int  # prefilled although they had been before, because of a move, an eviction or a publish
