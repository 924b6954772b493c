"""Reads the CSV of Azure's public LLM inference traces: arrival, context tokens and generated tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from ..findings import Kind, Report, found
from ..schema import Quality
from ..trace import Trace
from .fields import MOST_TOKENS
from .files import files_below, nothing_left
from .single_calls import single_calls
from .tables import head_columns, text_table

_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def detect(path: Path) -> bool:
    """A `.csv` file (or the first in a folder) whose header names Azure's three columns."""
    return any(set(_COLUMNS) <= set(head_columns(file)) for file in files_below(path, ".csv")[:1])


def read(path: Path) -> tuple[Trace, Report]:
    """Read one file or a folder of them; every request is an execution of one call and a group of its own.

    Arrival times are not kept: gyre dispatches executions itself.

    Raises:
        InputError: no usable row is there.
    """
    report = Report()
    kept: list[pl.DataFrame] = []
    for file in files_below(path, ".csv"):
        rows = text_table(file, _COLUMNS)
        tokens = rows.select(pl.col("ContextTokens", "GeneratedTokens").cast(pl.Int64, strict=False))
        bad = tokens.select(bad=pl.any_horizontal(~pl.all().is_between(0, MOST_TOKENS).fill_null(False)))["bad"]
        finding = found(
            rows,
            bad,
            kind=Kind.SKIPPED,
            table=file.name,
            rule="bad_row",
            says="tokens are no counts",
            show=_COLUMNS,
            lines=rows["line"],
        )
        report += Report(() if finding is None else (finding,))
        ids = pl.concat_str(pl.lit(f"{file.stem}:"), rows["line"])
        kept.append(tokens.with_columns(execution_id=ids).filter(~bad))
    if not any(len(rows) for rows in kept):
        raise nothing_left(path, "Azure request", report)
    rows = pl.concat(kept)
    calls = rows.select(
        "execution_id",
        group_id="execution_id",
        input_tokens="ContextTokens",
        output_tokens="GeneratedTokens",
        wait_s=pl.lit(0.0),
        reward=pl.lit(None, pl.Float64),
    )
    trace = single_calls(calls, source="azure", token_quality=Quality.RECORDED, time_quality=Quality.ABSENT)
    return trace, report
