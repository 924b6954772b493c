"""The invariants of a trace that can be repaired, each with the rule that repairs it."""

from __future__ import annotations

import polars as pl

from .rules import CALL_SHOWN, Rule
from .schema import Relation, ScoreStatus, WaitKind

_col = pl.col
_call = CALL_SHOWN
_null_int = pl.lit(None, pl.Int32)
_null_float = pl.lit(None, pl.Float64)
_zero = pl.lit(0, pl.Int64)
_root = {
    "relation": pl.lit(Relation.ROOT.value),
    "parent_call": _null_int,
    "prefix_tokens": _zero,
    "dropped_tokens": _zero,
}


def _not_a_time(name: str) -> pl.Expr:
    return ~_col(name).is_finite() | (_col(name) < 0)


# In the order of repair: a later rule may rest on what an earlier one has put right.
REPAIRABLE: tuple[Rule, ...] = (
    Rule(
        "calls",
        "thread_parent",
        "thread 0 has no parent thread, others one that starts earlier; repaired to thread 0",
        pl.when(_col("thread") == 0)
        .then(_col("parent_thread").is_not_null())
        .otherwise(~_col("one_parent") | (_col("parent_first") >= _col("thread_first")).fill_null(True)),
        {"parent_thread": pl.when(_col("thread") == 0).then(_null_int).otherwise(pl.lit(0, pl.Int32))},
        (*_call, "thread", "parent_thread"),
    ),
    Rule(
        "calls",
        "join_after_threads",
        "a `subagent_join` must come after all calls of the threads that it joins; repaired to a plain tool wait",
        _col("open_until") >= _col("call_index"),
        {"wait_kind": pl.lit(WaitKind.TOOL.value)},
        (*_call, "open_until"),
    ),
    Rule(
        "calls",
        "wait_nonnegative",
        "`wait_s` >= 0; repaired to 0",
        _col("wait_s") < 0,
        {"wait_s": pl.lit(0.0)},
        (*_call, "wait_s"),
    ),
    Rule(
        "calls",
        "input_positive",
        "`input_tokens` >= 1; repaired to 1",
        _col("input_tokens") < 1,
        {"input_tokens": pl.lit(1, pl.Int64)},
        (*_call, "input_tokens"),
    ),
    Rule(
        "calls",
        "output_nonnegative",
        "`output_tokens` >= 0; repaired to 0",
        _col("output_tokens") < 0,
        {"output_tokens": _zero},
        (*_call, "output_tokens"),
    ),
    Rule(
        "calls",
        "parent_earlier",
        "`parent_call` must be an earlier call of the execution; repaired to a root",
        (_col("parent_call") >= _col("call_index")) | (_col("parent_call") < 0),
        _root,
        (*_call, "parent_call"),
    ),
    Rule(
        "calls",
        "root_without_parent",
        "exactly the roots have no `parent_call`, and their prefix is 0; repaired to a root",
        pl.when(_col("relation") == Relation.ROOT.value)
        .then(_col("parent_call").is_not_null() | (_col("prefix_tokens") != 0) | (_col("dropped_tokens") != 0))
        .otherwise(_col("parent_call").is_null()),
        _root,
        (*_call, "relation", "parent_call", "prefix_tokens"),
    ),
    Rule(
        "calls",
        "append_grows",
        "an append's input is at least its parent's; repaired to a branch",
        (_col("relation") == Relation.APPEND.value) & (_col("input_tokens") < _col("parent_input")),
        {"relation": pl.lit(Relation.BRANCH.value)},
        (*_call, "input_tokens", "parent_input"),
    ),
    Rule(
        "calls",
        "prefix_within",
        "0 <= prefix <= input and <= the parent's context (input + output); repaired by clipping",
        (_col("prefix_tokens") < 0)
        | (_col("prefix_tokens") > _col("input_tokens"))
        | (_col("prefix_tokens") > _col("parent_context")),
        {"prefix_tokens": pl.min_horizontal(_col("prefix_tokens").clip(0), "input_tokens", "parent_context")},
        (*_call, "prefix_tokens", "input_tokens", "parent_context"),
    ),
    Rule(
        "calls",
        "dropped_within",
        "0 <= dropped <= the parent's context without the prefix; repaired by clipping",
        (_col("dropped_tokens") < 0) | (_col("dropped_tokens") > _col("parent_context") - _col("prefix_tokens")),
        {
            "dropped_tokens": pl.min_horizontal(
                _col("dropped_tokens").clip(0), _col("parent_context") - _col("prefix_tokens")
            )
        },
        (*_call, "dropped_tokens", "prefix_tokens", "parent_context"),
    ),
    Rule(
        "calls",
        "cached_within",
        "0 <= `cached_tokens` <= input; repaired to null",
        (_col("cached_tokens") < 0) | (_col("cached_tokens") > _col("input_tokens")),
        {"cached_tokens": pl.lit(None, pl.Int64)},
        (*_call, "cached_tokens", "input_tokens"),
    ),
    *(
        Rule(
            "calls",
            f"{name}_valid",
            f"`{name}` is a finite number >= 0 or null; repaired to null",
            _not_a_time(name),
            {name: _null_float},
            (*_call, name),
        )
        for name in ("start_s", "model_s")
    ),
    *(
        Rule(
            "executions",
            f"{name}_valid",
            f"`{name}` is a finite number >= 0; repaired to 0",
            _not_a_time(name),
            {name: pl.lit(0.0)},
            ("execution_id", name),
        )
        for name in ("setup_s", "scoring_s")
    ),
    Rule(
        "executions",
        "wall_s_valid",
        "`wall_s` is a finite number >= 0 or null; repaired to null",
        _not_a_time("wall_s"),
        {"wall_s": _null_float},
        ("execution_id", "wall_s"),
    ),
    Rule(
        "executions",
        "reward_finite",
        "`reward` is a finite number or null; repaired to null",
        ~_col("reward").is_finite(),
        {"reward": _null_float},
        ("execution_id", "reward"),
    ),
    Rule(
        "executions",
        "scored_has_reward",
        "a scored execution has a reward; repaired to unscored",
        (_col("score_status") == ScoreStatus.SCORED.value) & _col("reward").is_null(),
        {"score_status": pl.lit(ScoreStatus.UNSCORED.value)},
        ("execution_id", "score_status"),
    ),
    Rule(
        "executions",
        "sums_agree",
        "counts and sums of an execution agree with its calls; repaired by counting",
        (_col("n_calls") != _col("counted_calls"))
        | (_col("sum_input_tokens") != _col("counted_input"))
        | (_col("sum_output_tokens") != _col("counted_output")),
        {
            "n_calls": _col("counted_calls"),
            "sum_input_tokens": _col("counted_input"),
            "sum_output_tokens": _col("counted_output"),
        },
        ("execution_id", "n_calls", "counted_calls", "sum_input_tokens", "counted_input"),
    ),
    Rule(
        "groups",
        "group_size_agrees",
        "`n_executions` agrees with the executions; repaired by counting",
        _col("n_executions") != _col("counted_executions"),
        {"n_executions": _col("counted_executions")},
        ("group_id", "n_executions", "counted_executions"),
    ),
    Rule(
        "tools",
        "tool_duration_valid",
        "`duration_s` is a finite number >= 0 or null; repaired to null",
        _not_a_time("duration_s"),
        {"duration_s": _null_float},
        (*_call, "duration_s"),
    ),
)

# The one repair that removes rows: a tool call that no call of the trace has asked for.
ORPHAN_TOOL = Rule(
    "tools",
    "tool_has_call",
    "a tool call belongs to a call of the trace; repaired by removing the row",
    ~_col("call_exists"),
    {},
    (*_call, "tool"),
)
