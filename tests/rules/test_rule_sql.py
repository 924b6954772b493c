"""Queries on databases that are real, hostile or torn; comparison of rows against a reference by brute force."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules_files import artefacts, broken, judged

from gyre.scoring.rules.judges import sql

PASSED = (1.0, "")
SCHEMA = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL, note BLOB);
CREATE VIRTUAL TABLE words USING fts5 (a);
INSERT INTO words VALUES ('one two'), ('three');
INSERT INTO orders VALUES (1, 'ann', 10.0, NULL), (2, 'bob', 20.5, x'00ff'), (3, 'ann', 0.1 + 0.2, NULL);
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    database(artefacts(tmp_path) / "shop.db")
    return tmp_path


def database(path: Path, script: str = SCHEMA) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
        connection.commit()
    return path


def rule(query: str, **more: Any) -> dict[str, Any]:
    return {"kind": "sql", "database": "shop.db", "query": query, **more}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (rule("SELECT 1"), ""),
        (rule("SELECT count(*) FROM orders", rows=[[3]]), ""),
        (rule("SELECT count(*) FROM orders", rows=[[4]]), "row [3] is not among those expected"),
        (rule("SELECT total FROM orders WHERE id = 3", rows=[[0.3]]), ""),
        (rule("SELECT total FROM orders WHERE id = 3", rows=[[0.31]], tolerance=0.02), ""),
        (rule("SELECT total FROM orders WHERE id = 3", rows=[[0.31]]), "is not among"),
        (rule("SELECT id, customer FROM orders", rows=[[2, "bob"], [3, "ann"], [1, "ann"]]), ""),
        (rule("SELECT id FROM orders ORDER BY id", rows=[[1], [2], [3]], ordered=True), ""),
        (rule("SELECT id FROM orders ORDER BY id DESC", rows=[[1], [2], [3]], ordered=True), "row 1: [3] in place"),
        (rule("SELECT customer FROM orders", rows=[["ann"], ["bob"], ["bob"]]), "row ['ann'] is not among"),
        (rule("SELECT id FROM orders", rows=[[1]]), "3 rows in place of 1"),
        (rule("SELECT note FROM orders WHERE id = 2", rows=[["x'00ff'"]]), ""),
        (rule("SELECT '1'", rows=[[1]]), "is not among"),
        (rule("SELECT max(total) FROM orders", rows_of="SELECT 20.5"), ""),
        (rule("SELECT * FROM orders", rows_of="SELECT * FROM orders ORDER BY id DESC"), ""),
        (rule("SELECT * FROM orders", rows_of="SELECT * FROM void"), "rows_of: the query does not run: no such"),
        (rule("SELECT value FROM json_each('[4, 5]')", rows=[[5], [4]]), ""),
        (rule("SELECT a FROM words WHERE words MATCH 'two'", rows=[["one two"]]), ""),
        (rule("SELECT * FROM missing"), "the query does not run: no such table: missing"),
        (rule("SELECT * FROM orders, orders a, orders b", most_rows=26), "more than 26 rows"),
        (rule("PRAGMA table_info(orders)", rows_of="SELECT * FROM pragma_table_info('orders')"), ""),
    ],
)
def test_queries(place: Path, asked: dict[str, Any], said: str) -> None:
    passed, detail = judged(place, asked)
    assert passed == (not said)
    assert said in detail


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM orders",
        "CREATE TABLE a (b)",
        "CREATE TEMP TABLE a (b)",
        "ATTACH '/tmp/other.db' AS other",
        "VACUUM INTO 'other.db'",
        "PRAGMA journal_mode = WAL",
        "PRAGMA writable_schema = ON",
        "PRAGMA user_version = 3",
        "SELECT load_extension('x')",
        "UPDATE sqlite_master SET sql = ''",
        "INSERT INTO words VALUES ('four')",
        "BEGIN",
    ],
)
def test_a_query_only_reads(place: Path, query: str) -> None:
    before = (place / "artefacts" / "shop.db").read_bytes()
    passed, detail = judged(place, rule(query))
    assert passed == 0.0
    assert "the query does not run" in detail
    assert (place / "artefacts" / "shop.db").read_bytes() == before
    assert [path.name for path in (place / "artefacts").iterdir()] == ["shop.db"]


def test_a_query_that_never_ends_is_ended(place: Path) -> None:
    forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    assert judged(place, rule(forever, seconds=0.5)) == (0.0, "the query does not run: took too long")
    passed, detail = judged(place, rule("SELECT length(hex(zeroblob(900000000)))"))
    assert passed == 0.0
    assert "too big" in detail
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 900) SELECT zeroblob(9000000) FROM n"
    assert judged(place, rule(many)) == (0.0, "rows of more than 67,108,864 bytes")
    held = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT group_concat(hex(zeroblob(i))) FROM n"
    )
    assert judged(place, rule(held))[0] == 0.0


def test_a_query_of_the_execution(place: Path) -> None:
    asked = {"kind": "sql", "database": "shop.db", "rows": {"task": "rows"}}
    data = {"rows": [[3]]}
    by_answer = asked | {"query_is_answer": True}
    assert judged(place, by_answer, answer="SELECT count(*) FROM orders;", data=data) == PASSED
    assert "syntax error" in judged(place, by_answer, answer="how many?", data=data)[1]
    assert "one statement" in judged(place, by_answer, answer="SELECT 1; DROP TABLE orders", data=data)[1]
    assert judged(place, by_answer, answer="SELECT '\0'", data=data)[0] == 0.0
    assert judged(place, by_answer, data=data) == (0.0, "there is no answer")
    (place / "artefacts" / "query.sql").write_text("-- mine\nSELECT 3")
    assert judged(place, asked | {"query_file": "query.sql"}, data=data) == PASSED


def test_a_database_of_the_rules(place: Path) -> None:
    database(place / "gold.db")
    asked = {"kind": "sql", "database_file": "gold.db", "query_is_answer": True}
    assert judged(place, asked | {"rows_of": "SELECT 3"}, answer="SELECT count(*) FROM orders") == PASSED
    assert "rows_of: the query does not run" in broken(
        place, asked | {"rows_of": "SELECT * FROM no"}, answer="SELECT 1"
    )


def test_a_log_that_was_not_written_back_counts(place: Path) -> None:
    path = place / "artefacts" / "wal.db"
    script = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a); INSERT INTO t VALUES (5);"
    with closing(sqlite3.connect(path)) as open_one:
        open_one.executescript(script)
        asked = rule("SELECT a FROM t", database="wal.db", rows=[[5]])
        assert judged(place, asked) == PASSED


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no such table"),
        (b"not a database, and long enough to have a header of its own" * 9, "file is not a database"),
        (b"SQLite format 3\0" + b"\xff" * 4096, "the query does not run"),
    ],
)
def test_files_that_are_no_database(tmp_path: Path, content: bytes, said: str) -> None:
    artefacts(tmp_path, shop__db=content)
    passed, detail = judged(tmp_path, rule("SELECT * FROM orders"))
    assert passed == 0.0
    assert said in detail


def test_damaged_pages_are_a_zero_never_a_crash(place: Path) -> None:
    path = place / "artefacts" / "shop.db"
    whole = path.read_bytes()
    for start in range(100, len(whole), 1021):
        path.write_bytes(whole[:start] + b"\xa5" * 64 + whole[start + 64 :])
        assert 0 <= judged(place, rule("SELECT * FROM orders", rows=[]))[0] <= 1


def test_triggers_and_views_of_a_database_do_nothing_but_read(place: Path) -> None:
    hostile = """
    CREATE TABLE log (a);
    CREATE TABLE t (a);
    CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO log VALUES (1); END;
    CREATE VIEW v AS SELECT load_extension('/tmp/x') AS a;
    CREATE VIEW deep AS SELECT * FROM deep;
    """
    database(place / "artefacts" / "hostile.db", hostile)
    assert judged(place, rule("SELECT * FROM v", database="hostile.db"))[0] == 0.0
    assert judged(place, rule("SELECT * FROM deep", database="hostile.db"))[0] == 0.0
    assert judged(place, rule("INSERT INTO t VALUES (1)", database="hostile.db"))[0] == 0.0
    assert judged(place, rule("SELECT count(*) FROM log", database="hostile.db", rows=[[0]])) == PASSED


def test_a_change_that_was_not_finished_is_a_zero_and_no_file_is_removed(place: Path) -> None:
    """A rollback journal may name a superior journal, which SQLite removes when it rolls back."""
    (place / "artefacts" / "shop.db-journal").write_bytes(bytes.fromhex("d9d505f920a163d7") + b"\0" * 600)
    assert judged(place, rule("SELECT 1")) == (0.0, "shop.db: a change to it was begun and not finished")
    (place / "artefacts" / "shop.db-journal").write_bytes(b"\0" * 600)  # as journal_mode = PERSIST leaves it
    assert judged(place, rule("SELECT 1")) == PASSED


VALUES = st.sampled_from([None, 0, 1, 1.0, 1.04, 1.08, 2, "1", "a"])
ROWS = st.lists(st.tuples(VALUES, VALUES), max_size=5)


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str) or one is None or other is None:
        return bool(one == other)
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return abs(one - other) <= 0.05 * max(1, abs(one), abs(other))


@given(ROWS, ROWS)
def test_multisets_are_the_same_if_some_order_pairs_all_rows(
    found: list[tuple[Any, Any]], expected: list[tuple[Any, Any]]
) -> None:
    paired = len(found) == len(expected) and any(
        all(alike(a, b) for left, right in zip(found, order, strict=True) for a, b in zip(left, right, strict=True))
        for order in itertools.permutations(expected)
    )
    same = not sql.difference(found, expected, ordered=False, tolerance=0.05)
    assert same <= paired
    if len(set(found) & set(expected)) == 0:  # equal rows are paired first, which may leave others without a partner
        assert same == paired


@given(ROWS, st.randoms())
def test_order_counts_only_where_it_is_asked(rows: list[tuple[Any, Any]], order: Any) -> None:
    shuffled = list(rows)
    order.shuffle(shuffled)
    assert not sql.difference(shuffled, rows, ordered=False, tolerance=0)
    assert bool(sql.difference(shuffled, rows, ordered=True, tolerance=0)) == (shuffled != rows)
