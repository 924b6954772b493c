"""The quantities of a trace that are described, fitted and compared, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from ...arrays import FloatArray
from ...outcome import Outcome
from ...role import Role
from ..schema import Quality, Relation, WaitKind
from ..trace import Trace

MAIN: Final = (Role.MAIN.value, Role.SIDE.value)
SUMMARIES: Final = (Role.MAIN_SUMMARY.value, Role.SUB_AGENT_SUMMARY.value)
OTHER_WAITS: Final = (WaitKind.SUBAGENT_JOIN, WaitKind.HUMAN, WaitKind.QUEUE)
INEXACT: Final = (Quality.INFERRED.value, Quality.ABSENT.value)
TIMED_OUT: Final = (Outcome.HARNESS_TIMEOUT.value, Outcome.OVERALL_TIMEOUT.value)


@dataclass(frozen=True, slots=True)
class Samples:
    """Frames with one row an execution, a turn, a compaction, a sub-agent or a spawning call.

    `executions`: execution, group (integers), cut (true where a time-out or the record's end cut it short), main_calls,
        calls, unique_tokens, sum_input_tokens, sum_output_tokens, longest_context_tokens, first_input_tokens,
        first_wait_s, sub_agents, model_s, setup_s, scoring_s, wall_s, reward, exact_tokens (false where counts of
        tokens are inferred), only_duration (true where tokens are placeholders); executions without calls are left out.
    `turns`: execution, output_tokens, growth_tokens, tool_wait_s (null where the quantity is not defined), wait_s,
        wait_kind; summaries and failed attempts are left out.
    `compactions`: execution, context_before_tokens, context_after_tokens, summary_tokens (null where not recorded).
    `sub_agents`: execution, calls, input_tokens.
    `spawns`: execution, width.
    """

    executions: pl.DataFrame
    turns: pl.DataFrame
    compactions: pl.DataFrame
    sub_agents: pl.DataFrame
    spawns: pl.DataFrame

    def arrays(self) -> dict[str, FloatArray]:
        """Every distribution by name, nulls removed; empty where the trace does not hold the quantity.

        Tokens and calls are per execution unless the name says otherwise.
        """
        columns = {
            "calls": self.executions["calls"],
            "main_calls": self.executions["main_calls"],
            "unique_tokens": self.executions["unique_tokens"],
            "sum_input_tokens": self.executions["sum_input_tokens"],
            "sum_output_tokens": self.executions["sum_output_tokens"],
            "longest_context_tokens": self.executions["longest_context_tokens"],
            "wall_s": self.executions["wall_s"],
            "model_s": self.executions["model_s"],
            "setup_s": self.executions["setup_s"],
            "scoring_s": self.executions["scoring_s"],
            "first_input_tokens": self.executions["first_input_tokens"],
            "first_wait_s": self.executions["first_wait_s"],
            "output_tokens_per_call": self.turns["output_tokens"],
            "growth_tokens_per_call": self.turns["growth_tokens"],
            "tool_wait_s_per_call": self.turns["tool_wait_s"],
            **{f"{kind.value}_wait_s_per_call": self._waits(kind) for kind in OTHER_WAITS},
            "compaction_context_tokens": self.compactions["context_before_tokens"],
            "compaction_summary_tokens": self.compactions["summary_tokens"],
            "compaction_next_context_tokens": self.compactions["context_after_tokens"],
            "sub_agents_per_execution": self.executions.filter(pl.col("sub_agents") > 0)["sub_agents"],
            "sub_agent_calls": self.sub_agents["calls"],
            "sub_agents_at_once": self.spawns["width"],
        }
        return {name: _known(column) for name, column in columns.items()}

    def _waits(self, kind: WaitKind) -> pl.Series:
        return self.turns.filter(pl.col("wait_kind") == kind.value)["wait_s"]


def _known(column: pl.Series) -> FloatArray:
    """The values; empty if all are 0, which is how a trace says that it does not hold a time."""
    value = column.drop_nulls().cast(pl.Float64).to_numpy()
    return value if value.any() else value[:0]


def samples(trace: Trace) -> Samples:
    """Samples of a valid trace."""
    calls = _with_parents(trace)
    roles = pl.col("role").is_in
    compactions = calls.filter(pl.col("relation") == Relation.COMPACTION.value).select(
        "execution",
        # The parent is the summary call where that was recorded; its input is then the context that was full.
        context_before_tokens=pl.when(pl.col("parent_role").is_in(SUMMARIES))
        .then(pl.col("parent_input"))
        .otherwise(pl.col("parent_context")),
        context_after_tokens="input_tokens",
        summary_tokens=pl.when(pl.col("parent_role").is_in(SUMMARIES)).then(pl.col("parent_output")),
    )
    sub_threads = (
        calls.filter(pl.col("role") == Role.SUB_AGENT.value)
        .group_by("execution", "thread", maintain_order=True)
        .agg(
            calls=(pl.col("relation") != Relation.RETRY.value).sum(),
            input_tokens=pl.col("input_tokens").first(),
            spawned_by=pl.col("after_call").first(),
        )
    )
    return Samples(
        executions=_executions(trace, calls, sub_threads),
        turns=_turns(calls.filter(~roles(SUMMARIES))),
        compactions=compactions,
        sub_agents=sub_threads.select("execution", "calls", "input_tokens"),
        spawns=sub_threads.group_by("execution", "spawned_by", maintain_order=True)
        .agg(width=pl.len())
        .drop("spawned_by"),
    )


def _with_parents(trace: Trace) -> pl.DataFrame:
    """Calls with an execution number and their parent call's role, input, output and context."""
    numbers = trace.executions.select("execution_id").with_row_index("execution")
    calls = trace.calls.join(numbers, on="execution_id", how="left", maintain_order="left").with_row_index("row")
    parent = pl.col("row").first().over("execution").cast(pl.Int64) + pl.col("parent_call")
    calls = calls.with_columns(parent=parent)
    retried = calls.filter(pl.col("relation") == Relation.RETRY.value)["parent"]
    return calls.with_columns(
        parent_role=pl.col("role").gather(pl.col("parent")),
        parent_input=pl.col("input_tokens").gather(pl.col("parent")),
        parent_output=pl.col("output_tokens").gather(pl.col("parent")),
        failed=pl.col("row").cast(pl.Int64).is_in(retried.implode()),
    ).with_columns(parent_context=pl.col("parent_input") + pl.col("parent_output"))


def _turns(calls: pl.DataFrame) -> pl.DataFrame:
    # A first attempt carries the turn's wait and growth, the last one its output.
    again = pl.col("relation") == Relation.RETRY.value
    grown = (pl.col("relation") == Relation.APPEND.value) & ~pl.col("parent_role").is_in(SUMMARIES)
    waited = (pl.col("wait_kind") == WaitKind.TOOL.value) & ~again & (pl.col("relation") != Relation.COMPACTION.value)
    return calls.select(
        "execution",
        "wait_s",
        "wait_kind",
        output_tokens=pl.when(~pl.col("failed")).then(pl.col("output_tokens")),
        growth_tokens=pl.when(grown).then(pl.col("input_tokens") - pl.col("parent_context")),
        tool_wait_s=pl.when(waited).then(pl.col("wait_s")),
    )


def _executions(trace: Trace, calls: pl.DataFrame, sub_threads: pl.DataFrame) -> pl.DataFrame:
    main_turn = pl.col("role").is_in(MAIN) & (pl.col("relation") != Relation.RETRY.value)
    counted = calls.group_by("execution", maintain_order=True).agg(
        calls=pl.len(),
        main_calls=main_turn.sum(),
        unique_tokens=(pl.col("input_tokens") - pl.col("prefix_tokens") + pl.col("output_tokens")).sum(),
        longest_context_tokens=(pl.col("input_tokens") + pl.col("output_tokens")).max(),
        first_input_tokens=pl.col("input_tokens").first(),
        first_wait_s=pl.col("wait_s").first(),
        model_s=pl.when(pl.col("model_s").is_not_null().any()).then(pl.col("model_s").sum()),
    )
    spawned = sub_threads.group_by("execution").agg(sub_agents=pl.len())
    return (
        trace.executions.with_row_index("execution")
        .select(
            "execution",
            "sum_input_tokens",
            "sum_output_tokens",
            "setup_s",
            "scoring_s",
            "wall_s",
            "reward",
            group=pl.col("group_id").rank("dense").cast(pl.Int64) - 1,
            exact_tokens=~pl.col("token_quality").is_in(INEXACT),
            only_duration=pl.col("token_quality") == Quality.ABSENT.value,
            cut=pl.col("outcome").is_in(TIMED_OUT) | pl.col("censored"),
        )
        .join(counted, on="execution", how="inner", maintain_order="left")
        .join(spawned, on="execution", how="left", maintain_order="left")
        .with_columns(pl.col("sub_agents").fill_null(0))
    )
