"""A store gives back what went in, and says clearly what it cannot give."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_executions import Item, assert_same, big_item, item, items, part_files

from gyre.errors import InputError
from gyre.folder_lock import FolderLock
from gyre.trajectory.store import TrajectoryStore


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    return TrajectoryStore.create(tmp_path / "store")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.tuples(items("a"), items("b"), items("")))
def test_what_comes_back_is_what_went_in(tmp_path_factory: pytest.TempPathFactory, batch: list[Item]) -> None:
    store = TrajectoryStore.create(tmp_path_factory.mktemp("store"))
    store.append(batch)
    for expected in batch:
        assert_same(store.read(expected[0].execution), expected)


def test_appends_add_up_across_openings(store: TrajectoryStore) -> None:
    added = [item(f"e{number}", group=f"g{number // 2}") for number in range(6)]
    for pair in (added[:1], added[1:4], added[4:]):
        TrajectoryStore.open(store.path).append(pair)
    assert store.executions()["execution"].to_list() == [f"e{number}" for number in range(6)]
    assert store.groups() == {"g0": ("e0", "e1"), "g1": ("e2", "e3"), "g2": ("e4", "e5")}
    for found, expected in zip(store.read_group("g1"), added[2:4], strict=True):
        assert_same(found, expected)


def test_reading_goes_on_in_the_order_asked_for(store: TrajectoryStore) -> None:
    store.append([item("a"), item("b"), item("c")])
    store.append([item("d")])
    wanted = ["d", "a", "c", "d", "b", "b"]
    assert [record.execution for record, _ in store.read_all(wanted)] == wanted


def test_catalogue_counts_what_the_trees_hold(store: TrajectoryStore) -> None:
    added = [item("a"), item("b", calls=0, score=None)]
    store.append(added)
    rows = store.executions()
    assert rows["unique_tokens"].to_list() == [tree.unique_tokens for _, tree in added]
    assert rows["sampled_tokens"].to_list() == [tree.sampled_tokens for _, tree in added]
    assert rows["leaves"].to_list() == [len(tree.leaf_node) for _, tree in added]
    assert rows["score"].to_list() == [1.0, None]


def test_tables_are_parquet_that_other_tools_read(store: TrajectoryStore) -> None:
    record, tree = item("a")
    store.append([(record, tree)])
    nodes = pl.read_parquet(store.path / "nodes-*.parquet")
    assert nodes["ids"].explode().to_list() == tree.tokens.tolist()
    sampled = nodes.filter(pl.col("owner") >= 0)
    assert sampled["ids"].list.len().to_list() == sampled["logprobs"].list.len().to_list()
    assert sampled["version_tokens"].list.sum().to_list() == sampled["ids"].list.len().to_list()
    calls = pl.read_parquet(store.path / "calls-*.parquet")
    assert calls["call_id"].to_list() == list(tree.calls.call_id)
    assert set(calls["role"]) <= {"main", "main_summary", "sub_agent", "sub_agent_summary", "side"}


def test_one_execution_is_read_without_the_bytes_of_others(store: TrajectoryStore) -> None:
    wanted = big_item("wanted")
    store.append([big_item("before"), wanted, big_item("after")])
    own = part_files(store, "wanted")
    for path in store.path.glob("*-*.parquet"):
        if path not in own and not path.name.startswith("executions"):
            path.write_bytes(b"damaged")
    assert_same(store.read("wanted"), wanted)
    with pytest.raises(InputError, match="damaged"):
        store.read("before")


def test_small_executions_share_a_part_and_large_ones_do_not(store: TrajectoryStore) -> None:
    store.append([item("a"), item("b"), big_item("big"), item("c")])
    part = dict(store.executions().select("execution", "part").iter_rows())
    assert part["a"] == part["b"]
    assert len({part["a"], part["big"], part["c"]}) == 3


def test_an_execution_stands_once_unless_it_is_replaced(store: TrajectoryStore) -> None:
    store.append([item("a"), item("b")])
    with pytest.raises(InputError, match="'b' is there already"):
        store.append([item("c"), item("b", seed=1)])
    with pytest.raises(InputError, match="'d' is there already"):
        store.append([item("d"), item("d")])
    assert "c" not in store
    newer = item("b", seed=1)
    store.append([newer], replace=True)
    assert store.executions()["execution"].to_list() == ["a", "b"]
    assert_same(store.read("b"), newer)


def test_scores_come_later_than_calls(store: TrajectoryStore) -> None:
    store.append([item("a", score=None), item("b", score=0.5)])
    store.set_scores({"a": 0.25, "b": None})
    assert store.read("a")[0].score == 0.25
    assert TrajectoryStore.open(store.path).read("b")[0].score is None
    with pytest.raises(InputError, match="no execution 'c'"):
        store.set_scores({"a": 1.0, "c": 1.0})
    assert store.read("a")[0].score == 0.25
    store.set_scores({"a": 1, "b": np.float32(0.5)})  # whole numbers, and what a model gives
    assert [store.read(execution)[0].score for execution in "ab"] == [1.0, 0.5]
    store.set_scores({"a": math.nan})
    assert store.read("a")[0].score is None, "no valid score"


def test_merge_brings_all_executions_together(store: TrajectoryStore, tmp_path: Path) -> None:
    others = [TrajectoryStore.create(tmp_path / name) for name in ("left", "right")]
    added = {name: item(name) for name in "abcd"}
    store.append([added["a"]])
    others[0].append([added["b"], item("c", seed=9)])
    others[0].append([added["c"]], replace=True)
    others[0].set_scores({"b": 0.125})
    others[1].append([added["d"]])
    store.merge(others)
    assert store.executions()["execution"].to_list() == list("abcd")
    for name in "acd":
        assert_same(store.read(name), added[name])
    assert store.read("b")[0].score == 0.125
    with pytest.raises(InputError, match=r"right: execution 'd' is in .* too"):
        store.merge(others[1:])
    store.merge(others[1:], replace=True)
    assert_same(store.read("d"), added["d"])


def test_compact_joins_small_parts_and_lets_replaced_rows_go(store: TrajectoryStore) -> None:
    added = [item(f"e{number}") for number in range(5)]
    for each in added:
        store.append([each])
    big = big_item("big")
    store.append([big])
    big_files = part_files(store, "big")
    store.append([item("e2", seed=7)], replace=True)
    won = store.compact()
    assert won > 0
    assert store.executions()["part"].n_unique() == 2
    assert part_files(store, "big") == big_files
    added[2] = item("e2", seed=7)
    for expected in [*added, big]:
        assert_same(store.read(expected[0].execution), expected)
    assert store.compact() == 0
    assert store.verify() == []


def test_a_second_writer_is_told_to_wait(store: TrajectoryStore) -> None:
    with FolderLock(store.path), pytest.raises(InputError, match="in use by process"):
        store.append([item("a")])
    store.append([item("a")])
    assert "a" in store


def test_a_reader_sees_what_others_wrote(store: TrajectoryStore) -> None:
    reader = TrajectoryStore.open(store.path)
    store.append([item("a")])
    store.append([item("b")])
    assert len(reader) == 2
    reading = reader.read_all(["a", "b"])
    assert next(reading)[0].execution == "a"
    store.compact()  # moves both under the reader's hands
    assert next(reading)[0].execution == "b"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no trajectory store"),
        ("{", r"manifest\.json: torn or damaged"),
        ("[]", "not of a trajectory store"),
        ('{"format": "other"}', "not of a trajectory store"),
        ('{"format": "gyre trajectory store", "version": 99}', "written by a newer gyre"),
        ('{"format": "gyre trajectory store", "version": 2}', "damaged at `next_number`"),
        ('{"format": "gyre trajectory store", "version": 1}', "made by another version of gyre: build it again"),
    ],
)
def test_a_folder_that_cannot_be_opened(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=message):
        TrajectoryStore.open(tmp_path)
    with pytest.raises(InputError):
        TrajectoryStore.create(tmp_path) if content else TrajectoryStore.open(tmp_path / "missing")


def test_create_takes_no_folder_that_holds_something(tmp_path: Path, store: TrajectoryStore) -> None:
    with pytest.raises(InputError, match="a trajectory store already"):
        TrajectoryStore.create(store.path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes\.txt"):
        TrajectoryStore.create(tmp_path)


def test_a_store_that_lost_its_manifest_is_not_cleared_away(store: TrajectoryStore) -> None:
    store.append([item("a")])
    manifest = store.path / "manifest.json"
    content = manifest.read_bytes()
    manifest.unlink()
    with pytest.raises(InputError, match="no trajectory store"):
        store.append([item("b")])
    with pytest.raises(InputError, match=r"holds calls-000001\.parquet"):
        TrajectoryStore.create(store.path)
    manifest.write_bytes(content)
    assert_same(store.read("a"), item("a"))


def test_record_and_tree_must_be_of_one_execution(store: TrajectoryStore) -> None:
    with pytest.raises(InputError, match="record of 'a' with the tree of 'b'"):
        store.append([(item("a")[0], item("b")[1])])
    with pytest.raises(InputError, match="no execution 'a'"):
        store.read("a")
    with pytest.raises(InputError, match="no group 'g'"):
        store.read_group("g")


def test_manifest_is_readable_by_people(store: TrajectoryStore) -> None:
    store.append([item("a")])
    manifest = json.loads((store.path / "manifest.json").read_text())
    assert manifest["version"] == 2
    assert manifest["parts"][0]["executions"] == 1
    assert (store.path / manifest["parts"][0]["nodes"]["name"]).stat().st_size == manifest["parts"][0]["nodes"]["size"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"score": math.inf}, "score is inf, expected a finite number"),
        ({"score": "1"}, "score is '1', expected a finite number"),
        ({"group": None}, "group is None, expected a text"),
    ],
)
def test_a_record_with_a_wrong_field_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    store = TrajectoryStore.create(tmp_path / "store")
    record, tree = item("e")
    with pytest.raises(InputError, match=said):
        store.append([(replace(record, **changes), tree)])
    assert len(store) == 0
