"""Replaces the pauses of people by waits for tools, so that a session with people can be replayed as RL."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ..arrays import FloatArray
from ..splitmix import WORD_MASK, hashed, mixed
from .findings import Finding, Kind, Report
from .schema import Quality, WaitKind
from .trace import Trace

HIDDEN_PAUSE_S: Final = (
    60.0  # a recorded tool wait above this, with a person in the loop, is taken for the person's pause
)
LEAST_SAMPLE: Final = 100  # fewer tool waits than this in the trace itself: the built-in distribution is used

# Quantiles of the 121,651 waits for tools between calls of the 855 autonomous Claude Code runs of
# marcoemrich/agentic_coding_lab @392b5045 (MIT), waits for sub-agents and compactions left out; mean 0.31 s. Measured
# with the recorded-parquet importer.
DEFAULT_QUANTILES: Final = (
    (0.0, 0.0),
    (0.01, 0.001),
    (0.05, 0.002),
    (0.1, 0.003),
    (0.2, 0.007),
    (0.3, 0.015),
    (0.4, 0.022),
    (0.5, 0.028),
    (0.6, 0.043),
    (0.7, 0.647),
    (0.8, 0.698),
    (0.9, 0.790),
    (0.95, 0.939),
    (0.98, 1.567),
    (0.99, 2.062),
    (0.995, 2.683),
    (0.999, 4.362),
    (0.9999, 20.67),
    (1.0, 120.1),
)


def replace_human_waits(trace: Trace, *, seed: int, hidden_pause_s: float = HIDDEN_PAUSE_S) -> tuple[Trace, Report]:
    """The trace without people, and how many waits were replaced.

    Replaced are waits of kind `human`, wherever they are, and in executions with a person in the loop also waits for
    tools or sub-agents above `hidden_pause_s`. A `human` wait becomes a tool wait; the others keep their kind. The new
    wait is drawn from the trace's other tool waits if there are `LEAST_SAMPLE` or more, else from `DEFAULT_QUANTILES`;
    which quantile it is depends on (seed, execution id, call index) alone, not on the order of rows.

    In executions that had a person in the loop, `human_in_loop` becomes false, the time quality synthetic, and recorded
    starts and wall times, which held the pauses, null. Other executions stay as they are.
    """
    people = trace.executions.select("execution_id", "human_in_loop")
    calls = trace.calls.join(people, on="execution_id", how="left", maintain_order="left")
    human = pl.col("wait_kind") == WaitKind.HUMAN.value
    of_tools = pl.col("wait_kind").is_in([WaitKind.TOOL.value, WaitKind.SUBAGENT_JOIN.value])
    hidden = pl.col("human_in_loop") & of_tools & (pl.col("wait_s") > hidden_pause_s)
    marked = calls.select("execution_id", "call_index", "wait_s", "wait_kind", human=human, hidden=hidden)
    changed = marked["human"] | marked["hidden"]
    sample = marked.filter(~changed & (pl.col("wait_kind") == WaitKind.TOOL.value))["wait_s"].to_numpy()
    waits = marked["wait_s"].to_numpy().copy()
    rows = np.flatnonzero(changed.to_numpy())
    waits[rows] = _quantile(sample, uniform_draws(marked[rows], seed))
    replaced = _with_waits(trace, calls, pl.Series("wait_s", waits), marked["human"])
    return replaced, _report(marked, sample, hidden_pause_s)


def uniform_draws(calls: pl.DataFrame, seed: int) -> FloatArray:
    """One number in [0, 1) a row, from (seed, `execution_id`, `call_index`) alone."""
    hashes = {name: hashed(name) for name in calls["execution_id"].unique()}
    execution = calls["execution_id"].replace_strict(hashes, return_dtype=pl.UInt64).to_numpy()
    key = mixed(execution ^ mixed(np.full(len(calls), seed & WORD_MASK, np.uint64)))
    bits: npt.NDArray[np.uint64] = mixed(key + calls["call_index"].cast(pl.UInt64).to_numpy())
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _quantile(sample: FloatArray, at: FloatArray) -> FloatArray:
    """Values of the sample's distribution at the probabilities `at`; of the default where the sample is too small."""
    if len(sample) >= LEAST_SAMPLE:
        ordered = np.sort(sample)
        return np.asarray(ordered[(at * len(ordered)).astype(np.int64)], np.float64)
    probability, value = np.array(DEFAULT_QUANTILES).T
    return np.asarray(np.interp(at, probability, value), np.float64)


def _with_waits(trace: Trace, calls: pl.DataFrame, waits: pl.Series, human: pl.Series) -> Trace:
    people = pl.col("human_in_loop")
    tool = pl.lit(WaitKind.TOOL.value, trace.calls.schema["wait_kind"])
    new_calls = calls.with_columns(
        waits,
        wait_kind=pl.when(human).then(tool).otherwise(pl.col("wait_kind")),
        start_s=pl.when(people).then(None).otherwise(pl.col("start_s")),
    ).select(trace.calls.columns)
    new_executions = trace.executions.with_columns(
        wall_s=pl.when(people).then(None).otherwise(pl.col("wall_s")),
        time_quality=pl.when(people)
        .then(pl.lit(Quality.SYNTHETIC.value, trace.executions.schema["time_quality"]))
        .otherwise(pl.col("time_quality")),
        human_in_loop=pl.lit(False),
    )
    return Trace(new_executions, trace.groups, new_calls, trace.tools)


def _report(marked: pl.DataFrame, sample: FloatArray, hidden_pause_s: float) -> Report:
    origin = f"{len(sample)} tool waits of the trace" if len(sample) >= LEAST_SAMPLE else "the built-in distribution"
    counted = (
        ("human_wait_replaced", f"a person's pause replaced by a draw from {origin}", int(marked["human"].sum())),
        (
            "hidden_pause_replaced",
            f"a wait for tools above {hidden_pause_s:g} s with a person in the loop, replaced by a draw from {origin}",
            int(marked["hidden"].sum()),
        ),
    )
    return Report(tuple(Finding(Kind.ASSUMED, "calls", rule, says, count) for rule, says, count in counted if count))
