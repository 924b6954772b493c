"""Builds a trace of executions with one call each."""

from __future__ import annotations

import polars as pl

from ...outcome import Outcome
from ...role import Role
from ..schema import Quality, Relation, ScoreStatus, WaitKind
from ..trace import Trace, with_sums


def single_calls(rows: pl.DataFrame, *, source: str, token_quality: Quality, time_quality: Quality) -> Trace:
    """One execution with one main-thread call a row.

    `rows` has `execution_id`, `group_id`, `input_tokens`, `output_tokens`, `wait_s`, `reward`; the wait lies before the
    call. Nothing is known of the model time.
    """
    calls = rows.select(
        "execution_id",
        "input_tokens",
        "output_tokens",
        "wait_s",
        call_index=pl.lit(0),
        thread=pl.lit(0),
        role=pl.lit(Role.MAIN.value),
        relation=pl.lit(Relation.ROOT.value),
        prefix_tokens=pl.lit(0),
        dropped_tokens=pl.lit(0),
        wait_kind=pl.lit(WaitKind.START.value),
    )
    executions = rows.select(
        "execution_id",
        "group_id",
        "reward",
        source=pl.lit(source),
        outcome=pl.lit(Outcome.COMPLETED.value),
        score_status=pl.when(pl.col("reward").is_null())
        .then(pl.lit(ScoreStatus.UNSCORED.value))
        .otherwise(pl.lit(ScoreStatus.SCORED.value)),
        setup_s=pl.lit(0.0),
        scoring_s=pl.lit(0.0),
        human_in_loop=pl.lit(False),
        censored=pl.lit(False),
        synthetic=pl.lit(False),
        token_quality=pl.lit(token_quality.value),
        time_quality=pl.lit(time_quality.value),
        prefix_quality=pl.lit(Quality.ABSENT.value),
    )
    return Trace.from_frames(executions=with_sums(executions, calls), calls=calls, source=source)
