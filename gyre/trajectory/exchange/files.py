"""Records in files: JSON lines or Parquet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ...atomic import write_atomic
from ...errors import InputError
from ...parquet_errors import parquet_errors

Record = dict[str, Any]


def write_records(rows: Sequence[Record], path: Path) -> None:
    """Write one record a line (.jsonl), or a row (.parquet), atomically.

    Raises:
        InputError: the suffix is another, or the system refuses.
    """
    if path.suffix == ".jsonl":
        write_atomic(path, lambda temporary: _write_lines(rows, temporary))
    elif path.suffix == ".parquet":
        frame = _frame(rows)
        with parquet_errors(path):
            write_atomic(path, frame.write_parquet)
    else:
        raise _wrong_suffix(path)


def read_records(path: Path) -> list[Record]:
    """Read what `write_records` wrote.

    Raises:
        InputError: the file cannot be read, or its suffix is another.
    """
    if path.suffix not in {".jsonl", ".parquet"}:
        raise _wrong_suffix(path)
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path).to_dicts()
        with path.open(encoding="utf-8") as file:
            return [_record(path, number, line) for number, line in enumerate(file, 1) if line.strip()]
    except (OSError, pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def _wrong_suffix(path: Path) -> InputError:
    return InputError(f"{path}: a file of samples ends in .jsonl or .parquet; rename it")


def _record(path: Path, number: int, line: str) -> Record:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} line {number}: not JSON ({error.msg}); export the samples anew") from error
    if not isinstance(record, dict):
        raise InputError(f"{path} line {number}: not a JSON object; export the samples anew")
    return record


def _write_lines(rows: Sequence[Record], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, default=_as_json, allow_nan=False) + "\n")


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _frame(rows: Sequence[Record]) -> pl.DataFrame:
    names = dict.fromkeys(name for row in rows for name in row)
    return pl.DataFrame([_column(name, [row.get(name) for row in rows]) for name in names])


def _column(name: str, values: list[Any]) -> pl.Series:
    """A column of one type: arrays as lists, dicts as structs."""
    if any(isinstance(value, dict) for value in values):
        return _frame([value or {} for value in values]).to_struct(name)
    if any(isinstance(value, np.ndarray) for value in values):
        return pl.Series(name, [pl.Series(value) for value in values])
    return pl.Series(name, values, strict=False)
