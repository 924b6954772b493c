"""A trace in memory and on disk: four typed tables, read and written as a folder of Parquet files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from ..atomic import write_folder_atomic
from ..errors import InputError
from ..parquet_errors import parquet_errors
from .schema import NULLABLE, SCHEMA_VERSION, TABLES

VERSION_KEY: Final = "gyre.schema_version"


@dataclass(frozen=True, slots=True)
class Trace:
    """Executions, their groups, model calls and tool calls, with the columns and dtypes of `schema.TABLES`.

    Build one with `Trace.from_frames`: it fixes columns, dtypes and the order of rows. Whether the numbers make sense
    is `validate`'s matter.
    """

    executions: pl.DataFrame
    groups: pl.DataFrame
    calls: pl.DataFrame
    tools: pl.DataFrame

    @classmethod
    def from_frames(
        cls,
        *,
        executions: pl.DataFrame,
        calls: pl.DataFrame,
        groups: pl.DataFrame | None = None,
        tools: pl.DataFrame | None = None,
        source: str = "trace",
    ) -> Trace:
        """A trace from tables that hold at least the columns that may not be null.

        Missing nullable columns are filled with null, dtypes are cast, `groups` is derived from the executions if None,
        and calls are put in the order of (execution, `call_index`).

        Raises:
            InputError: a column is unknown, missing, holds null where it may not, or does not fit its dtype. `source`
                names the origin in the message.
        """
        executions = conform(executions, "executions", source)
        groups = groups_of(executions) if groups is None else conform(groups, "groups", source)
        calls = _in_order(conform(calls, "calls", source), executions)
        tools = empty_tools() if tools is None else conform(tools, "tools", source)
        return cls(executions, groups, calls, tools)

    @classmethod
    def read(cls, path: Path | str) -> Trace:
        """Read a folder that `write` wrote.

        Raises:
            InputError: the folder is not a trace, is of another schema version, or a file in it is damaged.
        """
        folder = Path(path)
        if not is_trace(folder):
            raise InputError(
                f"{folder}: not a trace folder (no {', '.join(f'{table}.parquet' for table in TABLES)} in it); "
                "convert other formats with `gyre trace import`"
            )
        frames = {table: _read_table(folder / f"{table}.parquet") for table in TABLES}
        return cls.from_frames(**frames, source=str(folder))

    def write(self, path: Path | str) -> Path:
        """Write the four Parquet files (zstd) into folder `path`, all or nothing; an older trace there is replaced.

        Raises:
            InputError: `path` exists and is not a trace folder, or it cannot be written (a full disk, say).
        """
        folder = Path(path)
        if folder.exists() and not is_trace(folder) and not (folder.is_dir() and not any(folder.iterdir())):
            raise InputError(
                f"{folder}: exists and is not a trace, so it is not overwritten; choose another output folder"
            )
        with parquet_errors(folder):
            write_folder_atomic(folder, self._write_tables)
        return folder

    def _write_tables(self, folder: Path) -> None:
        for table, frame in self.tables().items():
            frame.write_parquet(
                folder / f"{table}.parquet", compression="zstd", metadata={VERSION_KEY: str(SCHEMA_VERSION)}
            )

    def tables(self) -> dict[str, pl.DataFrame]:
        """The four tables by name."""
        return {"executions": self.executions, "groups": self.groups, "calls": self.calls, "tools": self.tools}

    def select(self, execution_ids: pl.Series) -> Trace:
        """The trace of the given executions only, with groups counted again."""
        keep = pl.col("execution_id").is_in(execution_ids.implode())
        executions = self.executions.filter(keep)
        tasks = self.groups.select("group_id", "task")
        groups = groups_of(executions).drop("task").join(tasks, on="group_id", how="left", maintain_order="left")
        return Trace(executions, groups.select(self.groups.columns), self.calls.filter(keep), self.tools.filter(keep))

    @staticmethod
    def concat(traces: list[Trace]) -> Trace:
        """Several traces as one; execution ids must differ (`validate` checks), equal group ids become one group."""
        executions = pl.concat([trace.executions for trace in traces])
        tasks = (
            pl.concat([trace.groups for trace in traces]).unique("group_id", keep="first").select("group_id", "task")
        )
        groups = groups_of(executions).drop("task").join(tasks, on="group_id", how="left", maintain_order="left")
        calls = pl.concat([trace.calls for trace in traces])
        tools = pl.concat([trace.tools for trace in traces])
        return Trace.from_frames(executions=executions, groups=groups, calls=calls, tools=tools)


def is_trace(folder: Path) -> bool:
    """Whether the folder holds the files of a trace."""
    return all((folder / f"{table}.parquet").is_file() for table in TABLES)


def empty_tools() -> pl.DataFrame:
    """A tools table without rows."""
    return pl.DataFrame(schema=TABLES["tools"])


def groups_of(executions: pl.DataFrame, tasks: pl.DataFrame | None = None) -> pl.DataFrame:
    """The groups table that the executions' `group_id` imply, in order of appearance.

    `tasks`, if given, has columns `group_id` and `task`; otherwise `task` is null.
    """
    groups = executions.group_by("group_id", maintain_order=True).agg(
        n_executions=pl.len().cast(pl.Int64), synthetic=pl.col("synthetic").any()
    )
    if tasks is None:
        groups = groups.with_columns(task=pl.lit(None, pl.String))
    else:
        groups = groups.join(tasks.unique("group_id", keep="first"), on="group_id", how="left", maintain_order="left")
    return groups.select(list(TABLES["groups"]))


def with_sums(executions: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Executions with `n_calls`, `sum_input_tokens` and `sum_output_tokens` counted from the calls."""
    sums = calls.group_by("execution_id").agg(
        n_calls=pl.len().cast(pl.Int64),
        sum_input_tokens=pl.col("input_tokens").sum().cast(pl.Int64),
        sum_output_tokens=pl.col("output_tokens").sum().cast(pl.Int64),
    )
    counted = [name for name in ("n_calls", "sum_input_tokens", "sum_output_tokens") if name in executions.columns]
    joined = executions.drop(counted).join(sums, on="execution_id", how="left", maintain_order="left")
    return joined.with_columns(pl.col("n_calls", "sum_input_tokens", "sum_output_tokens").fill_null(0))


def conform(frame: pl.DataFrame, table: str, source: str) -> pl.DataFrame:
    """`frame` with exactly the columns and dtypes of the table; see `Trace.from_frames` for what is refused."""
    schema = TABLES[table]
    unknown = [name for name in frame.columns if name not in schema]
    if unknown:
        raise InputError(f"{source}: {table}: unknown column {unknown[0]!r}; remove it (known: {', '.join(schema)})")
    missing = [name for name in schema if name not in frame.columns and name not in NULLABLE[table]]
    if missing:
        raise InputError(f"{source}: {table}: column {missing[0]!r} is missing; add it, it may not be null")
    columns = [
        _cast(frame[name], dtype, table, source) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    ]
    conformed = frame.select(columns)
    for name in schema:
        nulls = 0 if name in NULLABLE[table] else conformed[name].null_count()
        if nulls:
            row = conformed[name].is_null().arg_true()[0]
            raise InputError(
                f"{source}: {table}: column {name!r} is null in {nulls} rows (first row {row}); it may not be null"
            )
    return conformed


def _cast(column: pl.Series, dtype: pl.DataType, table: str, source: str) -> pl.Series:
    if column.dtype == dtype:
        return column
    try:
        return column.cast(dtype)
    except pl.exceptions.PolarsError:
        bad = column.filter(column.cast(dtype, strict=False).is_null() & column.is_not_null())
        allowed = f" (one of {', '.join(dtype.categories)})" if isinstance(dtype, pl.Enum) else ""
        value = bad[0] if len(bad) else column.dtype
        wanted = f"{dtype.base_type().__name__}{allowed}"
        raise InputError(f"{source}: {table}: column {column.name!r} holds {value!r}; it must be {wanted}") from None


def _in_order(calls: pl.DataFrame, executions: pl.DataFrame) -> pl.DataFrame:
    """Calls by (row of the execution, call_index); calls of unknown executions last, for `validate` to report."""
    rows = executions.select("execution_id").unique(maintain_order=True).with_row_index("execution_row")
    rows = rows.with_columns(pl.col("execution_row").cast(pl.Int64))
    keyed = calls.join(rows, on="execution_id", how="left", maintain_order="left")
    ordered = keyed.select(
        (pl.col("execution_row").diff() < 0).any().alias("executions"),
        ((pl.col("execution_row").diff() == 0) & (pl.col("call_index").diff() < 0)).any().alias("calls"),
        pl.col("execution_row").has_nulls().alias("unknown"),
    )
    if not any(ordered.row(0)):
        return calls
    return keyed.sort("execution_row", "call_index", nulls_last=True, maintain_order=True).drop("execution_row")


def _read_table(path: Path) -> pl.DataFrame:
    try:
        version = pl.read_parquet_metadata(path).get(VERSION_KEY)
        if version != str(SCHEMA_VERSION):
            found = "no schema version" if version is None else f"schema version {version}"
            raise InputError(
                f"{path}: holds {found}, this gyre reads version {SCHEMA_VERSION}; "
                "import the source again with `gyre trace import`"
            )
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not a readable Parquet file ({reason}); copy or import the trace again") from error
