"""Reads a plain table of rollout lengths, CSV or JSON lines: what many users have and nothing more.

Columns: `group`, and `tokens` (output tokens of the rollout) or `duration_s` (`duration`: the same); optional `reward`
and `execution`. A row becomes an execution of one call: with tokens, a call of one input token and that many output
tokens, without wait; with a duration, a call of one input and one output token that waits for that long before it
starts (a pure wait: it takes no serving capacity). If both are given, tokens win and the duration is kept as the wall
time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import polars as pl

from ...errors import InputError
from ..findings import Kind, Report, found
from ..schema import Quality
from ..trace import Trace
from .fields import MOST_SECONDS, MOST_TOKENS
from .files import head_objects, json_lines, nothing_left
from .log import ImportLog
from .single_calls import single_calls
from .tables import head_columns, text_table

_ALIASES: Final = {
    "duration": "duration_s",
    "group_id": "group",
    "execution_id": "execution",
    "output_tokens": "tokens",
}
_COLUMNS: Final = ("group", "execution", "tokens", "duration_s", "reward")


def detect(path: Path) -> bool:
    """A CSV or JSON-lines file with `group` and `tokens` or `duration_s`."""
    if path.is_dir():
        return False
    names = [head_columns(path), *(list(found) for found in head_objects(path)[:1])]
    return any(_is_lengths({_ALIASES.get(name, name) for name in columns}) for columns in names)


def read(path: Path) -> tuple[Trace, Report]:
    """Read one file; see the module for what a row becomes.

    Raises:
        InputError: the columns are missing, or no usable row is there.
    """
    log = ImportLog()
    raw = _from_json_lines(path, log) if head_objects(path) else text_table(path)
    raw = raw.rename({name: _ALIASES[name] for name in raw.columns if name in _ALIASES})
    if not _is_lengths(set(raw.columns)):
        raise InputError(
            f"{path}: needs columns `group` and `tokens` or `duration_s`; it holds {', '.join(raw.columns[:-1])}"
        )
    rows = _typed(raw, path)
    bad = _bad(rows)
    says = "needs a group, and tokens >= 1 or a duration >= 0; a reward, if any, is a finite number"
    finding = found(
        raw, bad, kind=Kind.SKIPPED, table=path.name, rule="bad_row", says=says, show=_COLUMNS, lines=rows["line"]
    )
    good = rows.filter(~bad)
    if good.is_empty():
        raise nothing_left(path, "usable row of lengths", log)
    report = log.report() + Report(() if finding is None else (finding,))
    return _trace(good), report


def _is_lengths(names: set[str]) -> bool:
    return "group" in names and bool({"tokens", "duration_s"} & names)


def _from_json_lines(path: Path, log: ImportLog) -> pl.DataFrame:
    numbered = list(json_lines(path, log))
    names = {name for _, record in numbered for name in record} & {*_COLUMNS, *_ALIASES}
    columns = {name: [_text(record.get(name)) for _, record in numbered] for name in sorted(names)}
    table = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
    return table.with_columns(pl.Series("line", [number for number, _ in numbered], pl.Int64))


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _typed(raw: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The known columns with dtypes; missing ones are null, and a bad value is null with a true `*_bad` beside it."""
    rows = raw.select([name for name in (*_COLUMNS, "line") if name in raw.columns])
    rows = rows.with_columns(pl.lit(None, pl.String).alias(name) for name in _COLUMNS if name not in rows.columns)
    for name in ("tokens", "duration_s", "reward"):
        number = pl.col(name).str.strip_chars().replace("", None).cast(pl.Float64, strict=False)
        given = pl.col(name).str.strip_chars().fill_null("") != ""
        rows = rows.with_columns(
            (given & ~number.is_finite().fill_null(False)).alias(f"{name}_bad"), number.alias(name)
        )
    numbered = pl.concat_str(pl.lit(f"{path.stem}:"), "line")
    return rows.with_columns(execution=pl.coalesce("execution", numbered))


def _bad(rows: pl.DataFrame) -> pl.Series:
    tokens, duration = rows["tokens"], rows["duration_s"]
    return (
        rows["group"].is_null()
        | rows["tokens_bad"]
        | rows["duration_s_bad"]
        | rows["reward_bad"]
        | (tokens.is_null() & duration.is_null())
        | ~tokens.is_between(1, MOST_TOKENS).fill_null(True)
        | ~duration.is_between(0, MOST_SECONDS).fill_null(True)
    )


def _trace(rows: pl.DataFrame) -> Trace:
    timed = pl.col("tokens").is_null()
    trace = single_calls(
        rows.select(
            execution_id="execution",
            group_id="group",
            input_tokens=pl.lit(1),
            output_tokens=pl.col("tokens").round().cast(pl.Int64).fill_null(1),
            wait_s=pl.when(timed).then("duration_s").otherwise(0.0),
            reward="reward",
        ),
        source="lengths",
        token_quality=Quality.RECORDED,
        time_quality=Quality.ABSENT,
    )
    quality = pl.Series("timed", rows.select(timed)["tokens"])
    executions = trace.executions.with_columns(
        wall_s=rows["duration_s"],
        token_quality=pl.when(quality)
        .then(pl.lit(Quality.ABSENT.value))
        .otherwise(pl.col("token_quality").cast(pl.String)),
        time_quality=pl.when(rows["duration_s"].is_not_null())
        .then(pl.lit(Quality.RECORDED.value))
        .otherwise(pl.lit(Quality.ABSENT.value)),
    )
    return Trace.from_frames(executions=executions, calls=trace.calls, source="lengths")
