"""Steps of moves and of publishes: how long each took, on which cell."""

from __future__ import annotations

from typing import Final

import polars as pl

from ..events import TransferDone

TRANSFERS_SCHEMA: Final[dict[str, pl.DataType]] = {
    "cell": pl.Int64(),
    "step": pl.String(),  # see `gyre.events.TransferDone`; ", rehearsed" after it where it was
    "end_s": pl.Float64(),
    "seconds": pl.Float64(),
}


def transfers_frame(transfers: list[TransferDone]) -> pl.DataFrame:
    """Return them (`TRANSFERS_SCHEMA`), in the order in which they were told."""
    rows = [(one.cell, _name(one), one.time_s, one.seconds) for one in transfers]
    return pl.DataFrame(rows, schema=TRANSFERS_SCHEMA, orient="row")


def _name(transfer: TransferDone) -> str:
    return f"{transfer.step}, rehearsed" if transfer.rehearsed else transfer.step


def transfer_times(transfers: pl.DataFrame) -> pl.DataFrame:
    """Return how often each step was done, and its seconds: `step`, `count`, `median_s`, `longest_s`, `sum_s`."""
    seconds = pl.col("seconds")
    return transfers.group_by("step", maintain_order=True).agg(
        pl.len().alias("count"),
        seconds.median().alias("median_s"),
        seconds.max().alias("longest_s"),
        seconds.sum().alias("sum_s"),
    )
