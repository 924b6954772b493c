"""A query that runs on a SQLite database, and its rows."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from ....errors import InputError
from ..apart import judged_apart
from ..artefacts import Artefacts
from ..rule import Judging, Rule
from ..task_value import OR_FROM_TASK, FromTask, TaskText
from ..verdict import FailedCheckError, Verdict

Value = str | int | float | None
_GRACE_S: Final = 2.0  # until the process that does not heed its own limit is ended
_MOST_QUERY_BYTES: Final = 1 << 20
_LOG, _JOURNAL = "-wal", "-journal"
_HOT: Final = bytes.fromhex("d9d505f920a163d7")  # a rollback journal that is in use begins so (sqlite.org/fileformat)


class SqlRule(Rule):
    """Passes if the query runs and, where rows are expected, gives those.

    The query can only read, and works on a copy of the database.
    """

    kind: Literal["sql"]
    database: TaskText | None = Field(default=None, description="file of the artefacts")
    database_file: TaskText | None = Field(default=None, description="or a file beside the rules file")
    query: TaskText | None = None
    query_file: TaskText | None = Field(default=None, description="or a file of the artefacts that holds it")
    query_is_answer: bool = False
    rows: Annotated[tuple[tuple[Value, ...], ...], OR_FROM_TASK] | None = None
    rows_of: TaskText | None = Field(default=None, description="or a query that gives the expected rows")
    ordered: bool = False
    tolerance: float = Field(default=1e-9, ge=0, description="of floats, absolute or relative")
    most_rows: int = Field(default=10_000, ge=1, le=1_000_000, description="a query that gives more fails")
    most_bytes: int = Field(default=1 << 30, ge=1, description="of the database; a larger one fails")
    seconds: float = Field(default=30.0, gt=0, le=86_400)

    @field_validator("query", "rows_of")
    @classmethod
    def _can_be_parsed(cls, query: str | None) -> str | None:
        if isinstance(query, str):
            _check_syntax(query)
        return query

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.database is None) == (self.database_file is None):
            raise ValueError("give either database or database_file")
        if (self.query is not None) + (self.query_file is not None) + self.query_is_answer != 1:
            raise ValueError("give exactly one of query, query_file and query_is_answer")
        if self.rows is not None and self.rows_of is not None:
            raise ValueError("give rows or rows_of, not both")
        return self

    def check_files(self, folder: Path, where: str) -> None:
        """Refuse a database that is not there."""
        if self.database_file is None or isinstance(self.database_file, FromTask):
            return
        if not (folder / self.database_file).is_file():
            raise InputError(f"{where}: database_file: {folder / self.database_file}: no such file")

    def belongings(self, folder: Path) -> list[Path]:
        """The database's file."""
        return [folder / self.database_file] if isinstance(self.database_file, str) else []

    async def judge(self, judging: Judging) -> Verdict:
        """Copy the database, then run the query apart."""
        query = await self._query(judging)
        with tempfile.TemporaryDirectory(prefix="gyre-sql-") as folder:
            copy = Path(folder, "database")
            await asyncio.to_thread(self._copy, judging, copy)
            question: dict[str, Any] = {
                "question": "sql",
                "database": str(copy),
                "database_is_ours": self.database_file is not None,
                "query": query,
                "rows": self.rows,
                "rows_of": self.rows_of,
                "seconds": self.seconds,
                "ordered": self.ordered,
                "tolerance": self.tolerance,
                "most_rows": self.most_rows,
            }
            return await judged_apart(question, self.seconds + _GRACE_S)

    async def _query(self, judging: Judging) -> str:
        if self.query is not None:
            return self.query
        if self.query_file is not None:
            artefacts = judging.artefacts(self.seconds)
            content = await asyncio.to_thread(artefacts.read, self.query_file, _MOST_QUERY_BYTES)
            return content.decode("utf-8", "replace")
        if judging.subject.answer is None:
            raise FailedCheckError("there is no answer")
        return judging.subject.answer

    def _copy(self, judging: Judging, target: Path) -> None:
        """Copy the database and what is not in its main file yet."""
        if self.database_file is not None:
            found = judging.of_the_rules(self.database_file)
            source, name = Artefacts.of_the_rules(found.parent, self.seconds), found.name
        else:
            source, name = judging.artefacts(self.seconds), str(self.database)
        source.copy(name, target, self.most_bytes)
        if source.find(name + _JOURNAL) and source.head(name + _JOURNAL, len(_HOT)) == _HOT:
            # SQLite would undo it, and remove whatever file the journal names as its superior.
            raise source.error(f"{name}: a change to it was begun and not finished")
        if source.find(name + _LOG):
            source.copy(name + _LOG, target.with_name(target.name + _LOG), self.most_bytes)


def _check_syntax(query: str) -> None:
    """Raise ValueError for what no database would run; tables that are missing here may be there."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"EXPLAIN {query}")
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        if any(
            sign in str(error) for sign in ("syntax error", "incomplete input", "unrecognized token", "one statement")
        ):
            raise ValueError(f"no SQL query: {error}") from error
    finally:
        connection.close()
