"""Reads CSV and JSON-lines tables as text, so that one bad cell does not spoil a column."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from ...errors import InputError

HEAD_BYTES: Final = 65_536
MOST_SHOWN: Final = 200  # characters of the columns that are quoted


def head_columns(path: Path) -> list[str]:
    """The column names in a CSV file's header, for detection; empty if it has none."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            return [name.strip() for name in next(csv.reader(lines), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def head_text(path: Path) -> str:
    """The beginning of a text file, for a look at its line ends; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def text_table(path: Path, required: Sequence[str] = ()) -> pl.DataFrame:
    """A CSV file as text columns, with the number of each row's line (from 1, no line breaks in cells) as `line`.

    Short lines are filled with null and long ones cut.

    Raises:
        InputError: the file cannot be read as CSV or lacks a required column.
    """
    try:
        table = pl.read_csv(path, infer_schema=False, truncate_ragged_lines=True, encoding="utf8-lossy")
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0][:MOST_SHOWN]
        raise InputError(f"{path}: not a readable CSV file ({reason}); export it again with a header line") from error
    table = table.rename({name: name.strip().lstrip("\ufeff") for name in table.columns})
    missing = [name for name in required if name not in table.columns]
    if missing:
        raise InputError(f"{path}: column {missing[0]!r} is missing; it holds {', '.join(table.columns)[:MOST_SHOWN]}")
    return table.with_columns(line=pl.int_range(2, pl.len() + 2))
