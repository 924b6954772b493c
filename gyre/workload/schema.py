"""The trace schema: four tables that describe recorded or generated executions.

A trace is a folder of four Parquet files, one a table. Times are seconds (float64), counts of tokens are int64, rows of
`calls` are ordered by (execution, `call_index`). `SCHEMA_VERSION` is stored in each file's key-value metadata.

How a call starts: a call is released when the call `after_call` of the same execution has finished and, if its
`wait_kind` is `subagent_join`, when every sub-agent thread spawned so far by this call's thread and not joined before
has finished too. It starts `wait_s` after its release. A call with `after_call` null is released when set-up ends.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import polars as pl

from ..outcome import Outcome
from ..role import Role

SCHEMA_VERSION: Final = 1


class Relation(StrEnum):
    """How a call's context derives from its parent call's."""

    ROOT = "root"  # from none
    APPEND = "append"  # the parent's whole context, and more; `prefix_tokens` may count full blocks only
    BRANCH = "branch"  # a beginning of the parent's context, then something else
    COMPACTION = "compaction"  # a branch whose rest is a summary of what was dropped
    RETRY = "retry"  # the parent's input again


class WaitKind(StrEnum):
    """Why a call did not start as soon as it was released."""

    START = "start"  # first call of its thread
    TOOL = "tool"
    HUMAN = "human"
    SUBAGENT_JOIN = "subagent_join"  # the wait after the last sub-agent has ended
    QUEUE = "queue"  # the harness or provider, such as a summary call that the source does not list


class ScoreStatus(StrEnum):
    """What is known of an execution's score."""

    SCORED = "scored"
    FAILED = "failed"
    UNSCORED = "unscored"


class Quality(StrEnum):
    """Where a measured quantity comes from."""

    RECORDED = "recorded"
    ROUNDED = "rounded"
    INFERRED = "inferred"
    SYNTHETIC = "synthetic"
    ABSENT = "absent"


def _enum(kind: type[StrEnum]) -> pl.Enum:
    return pl.Enum([member.value for member in kind])


EXECUTIONS: Final[dict[str, pl.DataType]] = {
    "execution_id": pl.String(),
    "group_id": pl.String(),
    "source": pl.String(),
    "harness": pl.String(),
    "model": pl.String(),
    "outcome": _enum(Outcome),
    "reward": pl.Float64(),
    "score_status": _enum(ScoreStatus),
    "setup_s": pl.Float64(),
    "scoring_s": pl.Float64(),
    "wall_s": pl.Float64(),
    "human_in_loop": pl.Boolean(),
    "censored": pl.Boolean(),
    "synthetic": pl.Boolean(),
    "synthetic_scale": pl.String(),
    "n_calls": pl.Int64(),
    "sum_input_tokens": pl.Int64(),
    "sum_output_tokens": pl.Int64(),
    "token_quality": _enum(Quality),
    "time_quality": _enum(Quality),
    "prefix_quality": _enum(Quality),
}

GROUPS: Final[dict[str, pl.DataType]] = {
    "group_id": pl.String(),
    "task": pl.String(),
    "n_executions": pl.Int64(),
    "synthetic": pl.Boolean(),
}

CALLS: Final[dict[str, pl.DataType]] = {
    "execution_id": pl.String(),
    "call_index": pl.Int32(),  # 0, 1, 2, ... within the execution, by start
    "thread": pl.Int32(),  # 0 is the main thread
    "parent_thread": pl.Int32(),  # the thread that spawned this one; null on the main thread
    "role": _enum(Role),
    "agent": pl.String(),
    "parent_call": pl.Int32(),  # call whose context (input + output) this one's prefix comes from; null at a root
    "relation": _enum(Relation),
    "prefix_tokens": pl.Int64(),  # leading tokens of the input that the parent call's context already held
    "dropped_tokens": pl.Int64(),  # tokens of the parent call's context that this input no longer holds
    "input_tokens": pl.Int64(),  # whole input, cached tokens included
    "output_tokens": pl.Int64(),
    "cached_tokens": pl.Int64(),  # as the recording engine reported it; null where unknown
    "after_call": pl.Int32(),  # call whose end releases this one; null for a call released by the end of set-up
    "wait_s": pl.Float64(),  # from release to start
    "wait_kind": _enum(WaitKind),
    "start_s": pl.Float64(),  # recorded start since the execution's start; null where unknown
    "model_s": pl.Float64(),  # recorded time in the model; null where unknown
    "finish_reason": pl.String(),
    "model": pl.String(),
}

TOOLS: Final[dict[str, pl.DataType]] = {
    "execution_id": pl.String(),
    "call_index": pl.Int32(),  # the call that asked for the tool
    "tool_call_id": pl.String(),
    "tool": pl.String(),
    "start_s": pl.Float64(),
    "duration_s": pl.Float64(),
    "failed": pl.Boolean(),
}

TABLES: Final[dict[str, dict[str, pl.DataType]]] = {
    "executions": EXECUTIONS,
    "groups": GROUPS,
    "calls": CALLS,
    "tools": TOOLS,
}

NULLABLE: Final[dict[str, frozenset[str]]] = {
    "executions": frozenset({"harness", "model", "reward", "wall_s", "synthetic_scale"}),
    "groups": frozenset({"task"}),
    "calls": frozenset(
        {
            "parent_thread",
            "agent",
            "parent_call",
            "cached_tokens",
            "after_call",
            "start_s",
            "model_s",
            "finish_reason",
            "model",
        }
    ),
    "tools": frozenset({"tool_call_id", "tool", "start_s", "duration_s", "failed"}),
}

# OpenTelemetry's GenAI semantic conventions, where one names the same thing.
OPENTELEMETRY: Final[dict[str, str]] = {
    "executions.execution_id": "gen_ai.conversation.id",
    "executions.model": "gen_ai.request.model",
    "executions.reward": "gen_ai.evaluation.score.value",
    "calls.agent": "gen_ai.agent.name",
    "calls.model": "gen_ai.response.model",
    "calls.input_tokens": "gen_ai.usage.input_tokens",
    "calls.output_tokens": "gen_ai.usage.output_tokens",
    "calls.cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "calls.finish_reason": "gen_ai.response.finish_reasons",
    "calls.model_s": "gen_ai.client.operation.duration",
    "tools.tool": "gen_ai.tool.name",
    "tools.tool_call_id": "gen_ai.tool.call.id",
}
