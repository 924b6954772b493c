"""Threads of a trace: where each is spawned, where it ends, and which call joins it."""

from __future__ import annotations

import polars as pl

from .schema import WaitKind


def thread_table(calls: pl.DataFrame) -> pl.DataFrame:
    """One row a thread of each execution.

    `calls` is ordered by (execution, `call_index`) and has an integer column `execution` beside the schema's columns.

    Returns:
        Columns `execution`, `thread`, `parent_thread`, `one_parent` (whether all calls agree on it), `first_call`,
        `last_call`, `spawn_call` (the call that releases the first one, -1 for set-up) and `join_call` (the call of the
        parent thread that waits for this one, null if none does).
    """
    threads = calls.group_by("execution", "thread", maintain_order=True).agg(
        parent_thread=pl.col("parent_thread").first(),
        one_parent=pl.col("parent_thread").n_unique() == 1,
        first_call=pl.col("call_index").first(),
        last_call=pl.col("call_index").last(),
        spawn_call=pl.col("after_call").first().fill_null(-1),
    )
    # A join waits for what was spawned before it: the first join after the spawning call takes the thread.
    joins = join_calls(calls).select(
        "execution", parent_thread="thread", join_call="call_index", join_key=pl.col("call_index")
    )
    keyed = threads.with_row_index("order").with_columns(join_key=pl.col("spawn_call") + 1).sort("join_key")
    joined = keyed.join_asof(
        joins.sort("join_key"),
        on="join_key",
        by=["execution", "parent_thread"],
        strategy="forward",
        check_sortedness=False,
    )
    return joined.sort("order").drop("order", "join_key")


def open_until(calls: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """For each joining call, the last call of all threads that its own thread spawned before it.

    Returns:
        Columns `execution`, `call_index`, `open_until` (null where nothing was spawned). A join at index j is sound
        exactly if `open_until` < j, whatever the other joins are.
    """
    spawned = (
        threads.filter(pl.col("parent_thread").is_not_null())
        .select("execution", thread="parent_thread", key=pl.col("spawn_call") + 1, last="last_call")
        .sort("key")
        .with_columns(open_until=pl.col("last").cum_max().over("execution", "thread"))
    )
    joins = join_calls(calls).select("execution", "thread", "call_index", key="call_index").sort("key")
    return joins.join_asof(
        spawned.select("execution", "thread", "key", "open_until"),
        on="key",
        by=["execution", "thread"],
        strategy="backward",
        check_sortedness=False,
    ).select("execution", "call_index", "open_until")


def join_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that wait for sub-agents."""
    return calls.filter(pl.col("wait_kind") == WaitKind.SUBAGENT_JOIN.value)
