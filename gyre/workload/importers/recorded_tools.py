"""Finds which call asked for each recorded tool call."""

from __future__ import annotations

import polars as pl

from .log import ImportLog


def asked_tools(tools: pl.DataFrame, calls: pl.DataFrame, begun: pl.DataFrame, log: ImportLog) -> pl.DataFrame:
    """Tool calls with the call that asked for them: the latest of the thread that started before the tool."""
    key = ["execution_id", "thread"]
    asked = calls.select("execution_id", pl.col("thread").cast(pl.String), "start_us", call_index="call_seq")
    joined = (
        tools.with_columns(pl.col("thread").cast(pl.String))
        .with_row_index("row")
        .sort("start_us")
        .join_asof(asked.sort("start_us"), on="start_us", by=key, strategy="backward", check_sortedness=False)
        .join(begun, on="execution_id", how="left")
        .sort("row")
    )
    lost = joined["call_index"].null_count()
    for _ in range(lost):
        log.skip("tools", "no_call_before", "no call of its thread starts before it")
    return joined.filter(pl.col("call_index").is_not_null()).select(
        "execution_id",
        "call_index",
        tool="name",
        start_s=(pl.col("start_us") - pl.col("begin")) / 1e6,
        duration_s=pl.col("dur_us") / 1e6,
        failed="err",
    )
