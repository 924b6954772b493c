"""The invariants of a trace that no rule repairs, and what is worth a note; `repairs` has the others.

A rule is a Boolean expression over a *view* of one table (the table's columns plus what `validate` gathers beside them)
and, where a repair exists, the expressions that replace columns in the rows where it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from .findings import Kind


@dataclass(frozen=True, slots=True)
class Rule:
    """`bad` marks the rows that break the invariant; `mend` maps columns to their repaired values, or None if fatal."""

    table: str
    name: str
    says: str
    bad: pl.Expr
    mend: Mapping[str, pl.Expr] | None = None
    show: tuple[str, ...] = field(default=())

    @property
    def kind(self) -> Kind:
        """Fatal where there is no repair."""
        return Kind.FATAL if self.mend is None else Kind.REPAIRABLE


CALL_SHOWN = ("execution_id", "call_index")
_col = pl.col
_call = CALL_SHOWN

# Rules on which the gathering of parents rests: the others are looked at only where all of these hold.
STRUCTURE: tuple[Rule, ...] = (
    Rule(
        "executions",
        "execution_id_unique",
        "ids must differ",
        _col("execution_id").is_duplicated(),
        None,
        ("execution_id",),
    ),
    Rule("groups", "group_id_unique", "ids must differ", _col("group_id").is_duplicated(), None, ("group_id",)),
    Rule(
        "executions",
        "group_known",
        "`group_id` must be a row of groups",
        ~_col("group_exists"),
        None,
        ("execution_id", "group_id"),
    ),
    Rule(
        "calls", "execution_known", "`execution_id` must be a row of executions", ~_col("execution_exists"), None, _call
    ),
    Rule(
        "calls",
        "call_index_dense",
        "call indices of an execution must be 0, 1, 2, ...",
        _col("call_index") != _col("expected_index"),
        None,
        (*_call, "expected_index"),
    ),
    Rule(
        "calls",
        "starts_on_main",
        "an execution's first call must be on thread 0",
        (_col("call_index") == 0) & (_col("thread") != 0),
        None,
        (*_call, "thread"),
    ),
    Rule(
        "calls",
        "after_call_earlier",
        "`after_call` must be an earlier call of the execution",
        (_col("after_call") >= _col("call_index")) | (_col("after_call") < 0),
        None,
        (*_call, "after_call"),
    ),
    Rule(
        "calls",
        "wait_finite",
        "`wait_s` must be a finite number",
        ~_col("wait_s").is_finite(),
        None,
        (*_call, "wait_s"),
    ),
)

NOTES: tuple[Rule, ...] = (
    Rule(
        "calls",
        "no_output",
        "calls without output; a simulator gives them one token",
        _col("output_tokens") == 0,
        None,
        _call,
    ),
    Rule(
        "calls",
        "model_time_unknown",
        "calls without a recorded model time, where others have one; it stays null",
        _col("model_s").is_null() & _col("model_s").is_not_null().any(),
        None,
        _call,
    ),
    Rule(
        "executions",
        "no_calls",
        "executions without a model call",
        _col("counted_calls") == 0,
        None,
        ("execution_id", "outcome"),
    ),
)
