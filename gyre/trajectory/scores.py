"""Scores of executions from a table, for calls that were recorded without them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from ..errors import InputError
from .execution import ExecutionRecord
from .record_fields import checked_execution

_READERS: Final[dict[str, Callable[..., pl.DataFrame]]] = {
    ".csv": lambda path: pl.read_csv(path, infer_schema=False),
    ".jsonl": lambda path: pl.read_ndjson(path, infer_schema_length=None),
    ".ndjson": lambda path: pl.read_ndjson(path, infer_schema_length=None),
    ".parquet": pl.read_parquet,
}
_FORMS: Final = "CSV (.csv), JSON lines (.jsonl) or Parquet (.parquet)"


@dataclass(frozen=True, slots=True)
class Score:
    """An execution's row of the table."""

    execution: str
    group: str | None  # None: as the calls' own record says
    score: float | None  # None: no valid score; the execution is not trained
    where: str = ""  # the table and row, for errors


def read_scores(path: Path) -> dict[str, Score]:
    """Read a table with the columns `execution`, `score` and, where the calls do not tell it, `group`.

    Further columns are not looked at. An empty score means that there is no valid one.

    Raises:
        InputError: the file cannot be read, a column is missing, an execution is empty or comes twice, or a score is no
            finite number.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: not a table of scores by its name; give {_FORMS}")
    try:
        frame = reader(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
        raise InputError(f"{path}: cannot be read ({why}); give {_FORMS}") from error
    missing = [name for name in ("execution", "score") if name not in frame.columns]
    if missing:
        raise InputError(
            f"{path}: no column {missing[0]!r}; it needs execution and score, and group where calls lack it"
        )
    groups = frame["group"].to_list() if "group" in frame.columns else [None] * len(frame)
    found: dict[str, Score] = {}
    for row, (execution, group, score) in enumerate(
        zip(frame["execution"].to_list(), groups, frame["score"].to_list(), strict=True), start=1
    ):
        name = "" if execution is None else str(execution)
        if not name or name in found:
            raise InputError(f"{path}: row {row}: execution {'is given twice' if name else 'is empty'}; give each once")
        where = f"{path}: row {row}"
        found[name] = Score(name, None if group in (None, "") else str(group), _number(score, where), where)
    return found


def _number(value: Any, where: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: score is {value!r}; give a number, or nothing where there is none") from error
    if math.isnan(number):
        return None
    if math.isinf(number):
        raise InputError(f"{where}: score is {value!r}; give a finite number")
    return number


def scored_records(
    executions: Iterable[str], records: Mapping[str, ExecutionRecord], scores: Mapping[str, Score]
) -> tuple[dict[str, ExecutionRecord], list[str]]:
    """Return the records of executions with `scores` put in, and the executions of which nothing says that they ended.

    Raises:
        InputError: an execution has a score, but nothing says which group it is of.
    """
    found: dict[str, ExecutionRecord] = {}
    unfinished = []
    for execution in executions:
        record, score = records.get(execution), scores.get(execution)
        if score is None:
            if record is None:
                unfinished.append(execution)
            else:
                found[execution] = record
            continue
        group = score.group if score.group is not None else record.group if record is not None else None
        if group is None:
            where = f"{score.where}: " if score.where else ""
            raise InputError(f"{where}execution {execution} has a score and no group; give the scores a column group")
        base = record if record is not None else ExecutionRecord(execution, group)
        found[execution] = checked_execution(dataclasses.replace(base, group=group, score=score.score))
    return found, unfinished
