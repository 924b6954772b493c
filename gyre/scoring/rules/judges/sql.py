"""Runs a query on a SQLite database that is not trusted, and compares its rows with those that are expected."""

from __future__ import annotations

import math
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

_MOST_VALUE_BYTES: Final = 64 << 20
_MOST_RESULT_BYTES: Final = 64 << 20
_MOST_HEAP_BYTES: Final = 1 << 30
_STEPS_BETWEEN_LOOKS: Final = 10_000  # of SQLite's virtual machine
_READS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_READING_PRAGMAS: Final = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
    | {"foreign_key_check", "integrity_check", "quick_check", "data_version"}
)
_REFUSED_FUNCTIONS: Final = frozenset({"load_extension", "fts3_tokenizer"})

Row = tuple[Any, ...]


class _QueryError(Exception):
    """A query did not run."""


def judge(question: Mapping[str, Any]) -> dict[str, Any]:
    """Run the query and, where given, the reference query; compare rows, in order or as a multiset."""
    try:
        found = _rows(question, question["query"])
    except _QueryError as error:
        return {"passed": 0.0, "detail": str(error)}
    expected: list[Row] | None = None
    if question["rows"] is not None:
        expected = [tuple(row) for row in question["rows"]]
    elif question["rows_of"] is not None:
        try:
            expected = _rows(question, question["rows_of"])
        except _QueryError as error:
            said = f"rows_of: {error}"
            return {"broken": said} if question["database_is_ours"] else {"passed": 0.0, "detail": said}
    if expected is None:
        return {"passed": 1.0, "detail": ""}
    detail = difference(found, expected, ordered=question["ordered"], tolerance=question["tolerance"])
    return {"passed": float(not detail), "detail": detail}


def _rows(question: Mapping[str, Any], query: str) -> list[Row]:
    most, until = question["most_rows"], time.monotonic() + question["seconds"]
    try:
        connection = _opened(question["database"], until)
        try:
            rows = _fetched(connection.execute(query), most)
        finally:
            connection.close()
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
        why = "took too long" if time.monotonic() > until else str(error) or type(error).__name__
        raise _QueryError(f"the query does not run: {why}") from error
    return [tuple(map(_as_json, row)) for row in rows]


def _fetched(cursor: sqlite3.Cursor, most: int) -> list[Row]:
    rows: list[Row] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(rows) > most:
            raise _QueryError(f"more than {most:,} rows")
        if size > _MOST_RESULT_BYTES:
            raise _QueryError(f"rows of more than {_MOST_RESULT_BYTES:,} bytes")
    return rows


def _opened(path: str, until: float) -> sqlite3.Connection:
    """Open a database as SQLite's advice on untrusted ones has it (sqlite.org/security.html), for reading only."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.text_factory = lambda content: content.decode("utf-8", "replace")
    for pragma in (
        *("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "query_only = ON", "temp_store = MEMORY"),
        f"hard_heap_limit = {_MOST_HEAP_BYTES}",
    ):
        connection.execute(f"PRAGMA {pragma}")
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS_BETWEEN_LOOKS)
    connection.set_authorizer(_authorized)
    return connection


def _authorized(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and second in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA and first in _READING_PRAGMAS:
        return sqlite3.SQLITE_OK
    # What SQLite asks when json_each and other table functions are first used; query_only forbids the deed itself.
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY


def _as_json(value: Any) -> Any:
    """A value as a rules file can write it: a blob as SQLite's literal."""
    return f"x'{value.hex()}'" if isinstance(value, bytes) else value


def difference(found: Sequence[Row], expected: Sequence[Row], *, ordered: bool, tolerance: float) -> str:
    """Say how two tables differ; nothing where they are the same.

    Numbers are the same where they differ by `tolerance`, absolute or relative, or less. Integers must be equal.
    """
    if len(found) != len(expected):
        return f"{len(found)} rows in place of {len(expected)}"
    if ordered:
        pairs = enumerate(zip(found, expected, strict=True), 1)
        other = next((pair for pair in pairs if not _same(*pair[1], tolerance)), None)
        return "" if other is None else f"row {other[0]}: {list(other[1][0])!r} in place of {list(other[1][1])!r}"
    if all(_same(one, other, tolerance) for one, other in zip(_sorted(found), _sorted(expected), strict=True)):
        return ""
    unmatched = _unmatched(*_without_equal_ones(found, expected), tolerance)
    return "" if unmatched is None else f"row {list(unmatched)!r} is not among those expected"


def _sorted(rows: Sequence[Row]) -> list[Row]:
    """Rows in an order in which two tables that are the same mostly agree; what agrees is the same in any case."""
    return sorted(rows, key=lambda row: [_rank(value) for value in row])


def _rank(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (2, value) if isinstance(value, str) else (1, value)


def _without_equal_ones(found: Sequence[Row], expected: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Take out what is in both: equal rows are paired first."""
    ours, theirs = Counter(found), Counter(expected)
    return list((ours - theirs).elements()), list((theirs - ours).elements())


def _unmatched(found: Sequence[Row], expected: Sequence[Row], tolerance: float) -> Row | None:
    """Return a row of `found` that finds no partner when as many as can are paired (Kuhn's augmenting paths)."""
    partners = [[number for number, row in enumerate(expected) if _same(one, row, tolerance)] for one in found]
    taken: dict[int, int] = {}
    for start in range(len(found)):
        came_from: dict[int, int] = {}  # expected row: the found row that reached it
        waiting, end = [start], None
        while waiting and end is None:
            one = waiting.pop()
            for number in partners[one]:
                if number in came_from:
                    continue
                came_from[number] = one
                if number not in taken:
                    end = number
                    break
                waiting.append(taken[number])
        if end is None:
            return found[start]
        held = {one: number for number, one in taken.items()}
        while end is not None:
            one = came_from[end]
            taken[end], end = one, held.get(one)
    return None


def _same(one: Row, other: Row, tolerance: float) -> bool:
    return len(one) == len(other) and all(map(lambda a, b: _same_value(a, b, tolerance), one, other))


def _same_value(one: Any, other: Any, tolerance: float) -> bool:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    if numbers and (isinstance(one, float) or isinstance(other, float)):
        try:
            return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
        except OverflowError:  # an integer beyond all floats
            return False
    return bool(one == other)
