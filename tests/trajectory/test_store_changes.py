"""A store that grows by many changes, and one whose content is replaced."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_executions import Item, assert_same, item

from gyre.errors import InputError
from gyre.trajectory.store import TrajectoryStore
from gyre.trajectory.store.checked_file import write_checked
from gyre.trajectory.store.manifest import Manifest
from gyre.trajectory.tree import Refusal, Tree


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    store = TrajectoryStore.create(tmp_path / "store")
    store.append([item("a"), item("b")])
    return store


ITEMS = {name: item(name, calls=1) for name in "abcdef"}
names = st.sampled_from(sorted(ITEMS))
changes = st.lists(
    st.tuples(st.just("append"), st.lists(names, max_size=3, unique=True))
    | st.tuples(st.just("score"), st.lists(names, max_size=2, unique=True))
    | st.tuples(st.just("compact"), st.just([])),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=changes)
def test_any_changes_leave_what_a_dict_would_hold(
    changes: list[tuple[str, list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = TrajectoryStore.create(tmp_path_factory.mktemp("store"))
    model: dict[str, float | None] = {}
    for number, (kind, chosen) in enumerate(changes):
        if kind == "append":
            store.append([ITEMS[name] for name in chosen], replace=True)
            model |= dict.fromkeys(chosen, 1.0)
        elif kind == "score":
            scores = {name: float(number) for name in chosen if name in model}
            store.set_scores(scores)
            model |= scores
        else:
            store.compact()
        for reader in (store, TrajectoryStore.open(store.path)):
            assert list(reader.executions().select("execution", "score").iter_rows()) == list(model.items())
    assert store.verify() == []
    assert store.orphans() == []
    for name in model:
        assert store.read(name)[1].tokens.tolist() == ITEMS[name][1].tokens.tolist()


def test_an_append_writes_no_row_of_most_others(store: TrajectoryStore) -> None:
    written = 0
    for number in range(100):
        before = {file.name for file in Manifest.read(store.path).catalogues}
        store.append([item(f"e{number}", calls=1)])
        new = [file for file in Manifest.read(store.path).catalogues if file.name not in before]
        assert len(new) == 1
        written += pl.read_parquet(store.path / new[0].name).height
    assert len(Manifest.read(store.path).catalogues) <= 7  # log2 of 102
    assert written < 102 * 7
    assert store.executions()["execution"].to_list() == ["a", "b", *(f"e{number}" for number in range(100))]
    store.compact()
    assert len(Manifest.read(store.path).catalogues) == 1
    assert store.executions()["execution"].to_list()[:3] == ["a", "b", "e0"]


def test_several_changes_keep_other_writers_out(store: TrajectoryStore) -> None:
    other = TrajectoryStore.open(store.path)
    with store.writing():
        store.append([item("c")])
        assert "c" in other  # each change is there at once
        with pytest.raises(InputError, match="in use by process"):
            other.append([item("d")])
        with pytest.raises(InputError, match="in use by process"):
            TrajectoryStore.replace(store.path, [])
        store.set_scores({"c": 0.5})
    other.append([item("d")])
    assert len(store) == 4


def test_a_replaced_store_is_the_old_one_until_the_last_execution(store: TrajectoryStore) -> None:
    reader = TrajectoryStore.open(store.path)

    def new() -> Iterator[Item]:
        yield item("b", seed=1)
        assert_same(reader.read("a"), item("a"))
        yield item("c")
        assert len(TrajectoryStore.open(store.path)) == 2

    new_store = TrajectoryStore.replace(store.path, new())
    assert new_store.executions()["execution"].to_list() == ["b", "c"] == reader.executions()["execution"].to_list()
    assert_same(reader.read("b"), item("b", seed=1))
    assert new_store.verify() == []
    assert new_store.orphans() == []


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError])
def test_a_replacement_that_fails_leaves_the_old_store(store: TrajectoryStore, error: type[BaseException]) -> None:
    def failing() -> Iterator[Item]:
        yield item("big", calls=3)
        raise error

    for manifest in ((store.path / "manifest.json").read_bytes(), b"{"):
        (store.path / "manifest.json").write_bytes(manifest)
        before = files(store.path)
        with pytest.raises(error):
            TrajectoryStore.replace(store.path, failing())
        assert files(store.path) == before


@pytest.mark.parametrize("manifest", [None, b"", b'{"format": "gyre trajectory store", "version": 1}', b"damaged"])
def test_a_store_that_cannot_be_opened_can_be_replaced(store: TrajectoryStore, manifest: bytes | None) -> None:
    path = store.path / "manifest.json"
    path.unlink() if manifest is None else path.write_bytes(manifest)
    with pytest.raises(InputError):
        TrajectoryStore.open(store.path)
    found = TrajectoryStore.replace(store.path, [item("c")])
    assert_same(found.read("c"), item("c"))
    assert len(files(store.path)) == 4  # manifest, catalogue and one part


def test_files_of_others_are_not_touched(store: TrajectoryStore, tmp_path: Path) -> None:
    (store.path / "notes.txt").write_text("mine")
    (store.path / "exports").mkdir()
    TrajectoryStore.replace(store.path, [])
    assert (store.path / "notes.txt").read_text() == "mine"
    assert (store.path / "exports").is_dir()
    for manifest in (None, "{", '{"format": "other"}'):
        folder = tmp_path / f"not a store {manifest}"
        folder.mkdir()
        (folder / "nodes-000001.parquet").write_text("mine?")
        (folder / "notes.txt").write_text("mine")
        if manifest:
            (folder / "manifest.json").write_text(manifest)
        before = files(folder)
        with pytest.raises(InputError, match=r"no store, holds notes|not of a trajectory store"):
            TrajectoryStore.replace(folder, [item("c")])
        assert files(folder) == before


@pytest.mark.parametrize("table", ["nodes", "calls", "executions"])
@pytest.mark.parametrize("change", ["drop", "add", "cast"])
def test_other_columns_are_of_another_version(store: TrajectoryStore, table: str, change: str) -> None:
    (path,) = store.path.glob(f"{table}-*")
    frame = pl.read_parquet(path)
    last = frame.columns[-1]
    changed: dict[str, Any] = {
        "drop": lambda: frame.drop(last),
        "add": lambda: frame.with_columns(more=1),
        "cast": lambda: frame.with_columns(pl.lit(None, pl.Binary).alias(last)),
    }
    buffer = io.BytesIO()
    changed[change]().write_parquet(buffer)
    file = write_checked(path, buffer.getvalue())
    manifest = json.loads((store.path / "manifest.json").read_text())
    for entry in (manifest["catalogues"][0], manifest["parts"][0]["nodes"], manifest["parts"][0]["calls"]):
        if entry["name"] == file.name:
            entry.update(file.model_dump())
    (store.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="made by another version of gyre: build it again") as caught:
        TrajectoryStore.open(store.path).read("a")
    assert "\n" not in str(caught.value)


def test_trees_of_a_part_keep_their_own_refusals_and_media(store: TrajectoryStore) -> None:
    record, tree = item("r")
    refused = dataclasses.replace(tree, refused=store_refusals())
    store.append([(record, refused), item("s"), (dataclasses.replace(record, execution="t"), renamed(refused, "t"))])
    for name, expected in (("r", refused), ("t", renamed(refused, "t"))):
        assert_same(store.read(name), (dataclasses.replace(record, execution=name), expected))
    assert_same(store.read("s"), item("s"))


def store_refusals() -> tuple[Refusal, ...]:
    return (Refusal("x", 7, "unreadable", "its bytes"), Refusal("y", 8, "duplicate_call", "again"))


def renamed(tree: Tree, execution: str) -> Tree:
    return dataclasses.replace(tree, execution=execution)
