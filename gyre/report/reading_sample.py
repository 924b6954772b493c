"""Executions to read: a few of each step, drawn by a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from ..splitmix import hashed, mixed
from .record import RunRecord

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToRead:
    """An execution worth reading. `why` is what it stands for: best, worst, median, longest or random."""

    step: int
    why: str
    execution: int
    group: int
    task: int | None
    score: float | None
    outcome: str | None
    tokens: int
    tool_calls: int | None
    seconds: float | None
    failed_checks: tuple[str, ...]


def _by_score(row: Row) -> float:
    return float(row["score"])


def _median(rows: list[Row]) -> Row | None:
    scored = sorted((row for row in rows if row["score"] is not None), key=_by_score)
    return scored[len(scored) // 2] if scored else None


def _most(key: Callable[[Row], float], field: str) -> Callable[[list[Row]], Row | None]:
    def choose(rows: list[Row]) -> Row | None:
        return max((row for row in rows if row[field] is not None), key=key, default=None)

    return choose


_CHOICES: Final[dict[str, Callable[[list[Row]], Row | None]]] = {
    "best": _most(_by_score, "score"),
    "worst": _most(lambda row: -_by_score(row), "score"),
    "median": _median,
    "longest": _most(lambda row: float(row["tokens"]), "tokens"),
    "random": lambda rows: rows[0] if rows else None,
}


def reading_sample(record: RunRecord, seed: int = 0) -> list[ToRead]:
    """Return up to five executions of each step, of the groups that it trained; no execution stands for two things.

    Among equals the seed decides: executions are looked at in an order of hashes of seed and execution, so that the
    same run and seed give the same sample, however far the run has come.
    """
    steps = record.groups.filter(pl.col("state") == "consumed").select("group", "task", "version_trained")
    rows = record.executions.join(steps, on="group").filter(pl.col("outcome").is_not_null())
    chosen: list[ToRead] = []
    for _, part in sorted(rows.partition_by("version_trained", as_dict=True).items(), key=lambda item: item[0]):
        shuffled = sorted(part.iter_rows(named=True), key=lambda row: mixed(hashed(f"{seed}/{row['execution']}")))
        chosen += _of_step(shuffled)
    return chosen


def _of_step(rows: list[Row]) -> Iterator[ToRead]:
    for why, choose in _CHOICES.items():
        row = choose(rows)
        if row is None:
            continue
        rows = [other for other in rows if other is not row]
        ran = row["started_s"] is not None and row["finished_s"] is not None
        yield ToRead(
            step=row["version_trained"],
            why=why,
            execution=row["execution"],
            group=row["group"],
            task=row["task"],
            score=row["score"],
            outcome=row["outcome"],
            tokens=row["tokens"],
            tool_calls=row["tool_calls"],
            seconds=row["finished_s"] - row["started_s"] if ran else None,
            failed_checks=tuple(row["failed_checks"]),
        )
