"""Reads a plain table of rollout lengths, CSV or JSON lines: what many users have and nothing more.

Columns, in any case of letters: `group`, and `tokens` (output tokens of the rollout) or `duration_s` (`duration`: the
same); optional `reward` and `execution`. A row becomes an execution of one call: with tokens, a call of one input token
and that many output tokens, without wait; with a duration, a call of one input and one output token that waits for that
long before it starts (a pure wait: it takes no serving capacity). If both are given, tokens win and the duration is
kept as the wall time.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from ...errors import InputError
from ..findings import Kind, Report, found
from ..schema import Quality
from ..trace import Trace
from .fields import MOST_SECONDS, MOST_TOKENS
from .files import head_objects, json_lines, nothing_left
from .lengths_columns import COLUMNS, NEEDS, canonical, is_known, is_lengths, named_twice
from .lengths_fault import MOST_SHOWN, lengths_fault, quoted_columns
from .log import ImportLog
from .single_calls import single_calls
from .tables import head_columns, head_text, text_table


def detect(path: Path) -> bool:
    """A CSV or JSON-lines file with `group` and `tokens` or `duration_s`."""
    if path.is_dir():
        return False
    names = [head_columns(path), *(list(found) for found in head_objects(path)[:1])]
    return any(is_lengths(columns) for columns in names)


def read(path: Path) -> tuple[Trace, Report]:
    """Read one file; see the module for what a row becomes.

    Raises:
        InputError: the columns are missing, or no usable row is there.
    """
    log = ImportLog()
    raw = _from_json_lines(path, log) if head_objects(path) else _from_csv(path)
    rows = _typed(raw, path)
    bad = rows["fault"].is_not_null()
    says = "needs a group, and tokens >= 1 or a duration >= 0; a reward, if any, is a finite number"
    finding = found(
        rows, bad, kind=Kind.SKIPPED, table=path.name, rule="bad_row", says=says, show=["fault"], lines=rows["line"]
    )
    good = rows.filter(~bad)
    report = log.report() + Report(() if finding is None else (finding,))
    if good.is_empty():
        raise nothing_left(path, "usable row of lengths" if len(rows) else "row below its header", report)
    return _trace(good), report


def _from_csv(path: Path) -> pl.DataFrame:
    """The known columns of a CSV file as text, under their own names, and `line`."""
    if "\r" in (head := head_text(path)) and "\n" not in head:
        raise InputError(f"{path}: its lines end in CR alone; save it with line ends of LF or CR LF")
    raw = text_table(path)
    names = [name for name in raw.columns if name != "line"]
    _check_columns(path, names)
    known = {name: canonical(name) for name in names if is_known(name)}
    return raw.select(*known, "line").rename(known)


def _from_json_lines(path: Path, log: ImportLog) -> pl.DataFrame:
    numbered = list(json_lines(path, log))
    names = sorted({name for _, record in numbered for name in record})
    _check_columns(path, names)
    known = {canonical(name): name for name in names if is_known(name)}
    columns = {name: [_text(record.get(own)) for _, record in numbered] for name, own in known.items()}
    table = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
    return table.with_columns(pl.Series("line", [number for number, _ in numbered], pl.Int64))


def _check_columns(path: Path, names: list[str]) -> None:
    """Raise `InputError` unless the columns are those of a lengths file, each named once."""
    if not is_lengths(names):
        raise InputError(f"{path}: {lengths_fault(path) or f'{NEEDS}; it holds {quoted_columns(names)}'}")
    twice = named_twice(names)
    if twice:
        raise InputError(f"{path}: columns {twice[0]!r} and {twice[1]!r} mean the same; keep one of them")


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _typed(raw: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The known columns with dtypes, missing ones null, and the `fault` of each row, null where there is none."""
    missing = [pl.lit(None, pl.String).alias(name) for name in COLUMNS if name not in raw.columns]
    rows = raw.with_columns(missing).with_columns(pl.col(COLUMNS).str.strip_chars().replace("", None))
    numbers = {name: pl.col(name).cast(pl.Float64, strict=False) for name in ("tokens", "duration_s", "reward")}
    fault = _fault(numbers)
    numbered = pl.concat_str(pl.lit(f"{path.stem}:"), "line")
    return rows.with_columns(fault=fault, execution=pl.coalesce("execution", numbered), **numbers)


def _fault(numbers: dict[str, pl.Expr]) -> pl.Expr:
    """What is wrong with a row, null if nothing: the first of what can be."""
    tokens, duration = numbers["tokens"], numbers["duration_s"]
    group = pl.col("group")
    broken = group.str.contains("\ufffd", literal=True)  # what `text_table` puts for bytes that are no UTF-8
    return pl.coalesce(
        pl.when(group.is_null()).then(pl.lit("no group")),
        pl.when(broken).then(pl.format("the group {} is not UTF-8 text", "group")),
        *(
            pl.when(pl.col(name).is_not_null() & ~number.is_finite().fill_null(False)).then(
                pl.format("{} = {} is no finite number", pl.lit(name), pl.col(name).str.slice(0, MOST_SHOWN))
            )
            for name, number in numbers.items()
        ),
        pl.when(pl.col("tokens").is_null() & pl.col("duration_s").is_null()).then(
            pl.lit("neither tokens nor a duration")
        ),
        pl.when(~tokens.is_between(1, MOST_TOKENS)).then(pl.format("tokens = {} is out of range", "tokens")),
        pl.when(~duration.is_between(0, MOST_SECONDS)).then(pl.format("duration_s = {} is out of range", "duration_s")),
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
