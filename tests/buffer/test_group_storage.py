"""Executions on disk until their last update: what comes back, after a kill, a full disk and damage too."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import killed_storage
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_executions import Item, assert_same, big_item, item, items

import gyre.atomic
from gyre.buffer.storage import GroupStorage
from gyre.errors import InputError
from gyre.trajectory.advantages import Baseline
from gyre.trajectory.making import make_samples
from gyre.trajectory.samples import TOKEN_FIELDS
from gyre.trajectory.selection import Selection

KILLS = 30


@pytest.fixture
def storage(tmp_path: Path) -> GroupStorage:
    """Group 1 holds a and b, group 2 holds c."""
    storage = GroupStorage(tmp_path / "storage")
    storage.put(1, [item("a"), item("b")])
    storage.put(2, [item("c")])
    return storage


def reopened(storage: GroupStorage, memory_bytes: int = 0) -> GroupStorage:
    storage.close()
    return GroupStorage(storage.path, memory_bytes)


def names(storage: GroupStorage, group: int) -> list[str]:
    return [record.execution for record, _ in storage.get(group)]


@settings(max_examples=40)
@given(st.lists(items(), max_size=3), st.sampled_from([0, 2000, 10**9]))
def test_any_execution_comes_back_as_it_was(given_items: list[Item], memory_bytes: int) -> None:
    made = [
        (dataclasses.replace(record, execution=f"x{number}"), dataclasses.replace(tree, execution=f"x{number}"))
        for number, (record, tree) in enumerate(given_items)
    ]
    with tempfile.TemporaryDirectory() as folder, GroupStorage(folder, memory_bytes) as storage:
        storage.put(7, made)
        found = list(storage.get(7)) if made else []
        assert len(found) == len(made)
        for one, other in zip(found, made, strict=True):
            assert_same(one, other)


operations = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "release", "reopen"]), st.integers(0, 3), st.integers(0, 4)),
    max_size=25,
)


@settings(max_examples=60)
@given(operations, st.sampled_from([0, 5000, 12000, 10**9]))
def test_it_holds_what_a_dict_would_hold_within_its_memory(script: list[Any], memory_bytes: int) -> None:
    expected: dict[int, dict[str, Item]] = {}
    with tempfile.TemporaryDirectory() as folder:
        storage = GroupStorage(folder, memory_bytes)
        for step, (name, group, number) in enumerate(script):
            if name == "put":
                made = item(f"{group}-{number}", seed=step)  # a later one of the same name takes its place
                storage.put(group, [made])
                expected.setdefault(group, {})[made[0].execution] = made
            elif name == "release":
                storage.release(group)
                expected.pop(group, None)
            else:
                storage = reopened(storage, memory_bytes)
            assert storage.groups() == tuple(sorted(expected))
            assert storage.memory_bytes <= memory_bytes
            on_disk = sum(path.stat().st_size for path in Path(folder).glob("group-*"))
            assert storage.disk_bytes == on_disk == sum(map(storage.size, expected))
        for group, members in expected.items():
            assert sorted(storage.executions(group)) == sorted(members)
            for found in storage.get(group):
                assert_same(found, members[found[0].execution])
            assert len(names(storage, group)) == len(members)
        storage.close()


def test_the_samples_of_a_group_are_those_of_its_executions(storage: GroupStorage) -> None:
    given_items = [item("a", score=0.0), item("b", score=1.0), item("none", score=None)]
    storage.put(3, given_items)
    found, expected = (
        make_samples(each, Selection(), Baseline.MEAN_STD) for each in (reopened(storage).get(3), given_items)
    )
    for name in TOKEN_FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(found.loss_weights(), expected.loss_weights())
    assert found.dropped == expected.dropped


def test_buffered_rollouts_do_not_fill_memory(tmp_path: Path) -> None:
    """prime-rl#2796: 3,800 rollouts of 182 MiB, held as objects until their step, filled a machine's memory."""
    made, limit = big_item("big"), 5_000_000
    with GroupStorage(tmp_path, limit) as storage:
        storage.put(0, [made])
        one = storage.size(0)
        tracemalloc.start()
        try:
            for group in range(1, 40):
                storage.put(group, [made])
            for group in range(40):
                assert names(storage, group) == ["big"]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert storage.disk_bytes >= 40 * one
        assert one < storage.memory_bytes <= limit
        assert peak < limit + 5 * one  # an execution is encoded or decoded at a time
        assert 40 * one > 4 * (limit + 5 * one)  # which is far less than all


def test_space_of_released_groups_is_free_at_once(storage: GroupStorage) -> None:
    before = storage.disk_bytes
    storage.put(9, [big_item("big")])
    storage.release(9)
    storage.release(9)  # again, as after a restart: nothing happens
    assert storage.disk_bytes == before
    assert sorted(path.name for path in storage.path.glob("group-*")) == ["group-1.trees", "group-2.trees"]
    with pytest.raises(InputError, match="nothing of group 9"):
        storage.get(9)


def test_what_a_run_is_done_with_goes_at_a_restart(storage: GroupStorage) -> None:
    again = reopened(storage)
    assert again.keep_only({2, 5}) == (1,)
    assert again.groups() == (2,)


def killed_run(folder: Path, acknowledged: list[str]) -> tuple[bool, bool]:
    """Check a folder after a kill; return whether something torn was found, and whether all was done."""
    put = {tuple(map(int, line.split()[1:])) for line in acknowledged if line.startswith("put")}
    released = {int(line.split()[1]) for line in acknowledged if line.startswith("released")}
    releasing = {int(line.split()[1]) for line in acknowledged if line.startswith("releasing")}
    with GroupStorage(folder) as storage:
        assert not released & set(storage.groups())
        assert {group for group, _ in put} - releasing <= set(storage.groups())
        for group in storage.groups():
            found = {record.execution: (record, tree) for record, tree in storage.get(group)}
            assert {f"{group}-{number}" for of, number in put if of == group} <= set(found)
            for execution, each in found.items():
                assert_same(each, killed_storage.member(*map(int, execution.split("-"))))
        storage.put(999, [item("next")])  # and it goes on
        return bool(storage.problems), len(put) == killed_storage.GROUPS * killed_storage.MEMBERS


def test_after_a_kill_all_that_was_acknowledged_is_there_and_nothing_torn(tmp_path: Path) -> None:
    run = [sys.executable, killed_storage.__file__, str(tmp_path), str(KILLS), "5"]
    lines = subprocess.run(run, check=True, capture_output=True, text=True, timeout=300).stdout.splitlines()
    ends = [killed_run(Path(folder), acknowledged) for folder, acknowledged in map(json.loads, lines)]
    assert len(ends) == KILLS
    assert not all(done for _, done in ends)  # some kills came in the middle


@given(st.data())
def test_a_file_that_ends_anywhere_holds_the_executions_before(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = GroupStorage(folder)
        ends = np.cumsum([storage.put(1, [item(name)]) for name in "abc"]).tolist()
        storage.close()
        path = Path(folder) / "group-1.trees"
        end = data.draw(st.integers(0, ends[-1] - 1))
        os.truncate(path, end)
        whole = "abc"[: sum(each <= end for each in ends)]
        with GroupStorage(folder) as again:
            assert again.groups() == ((1,) if whole else ())
            assert len(again.problems) == (end not in [0, *ends])
            assert path.exists() == bool(whole)
            again.put(1, [item("d")])
            assert names(again, 1) == [*whole, "d"]


@pytest.mark.parametrize("left", [b"", b"\0" * 500, b"\xf5GYC"])
def test_a_power_cut_leaves_what_was_flushed(storage: GroupStorage, left: bytes) -> None:
    """The file has its new size, and of the last record's bytes only the first came to the disk, or none."""
    size = storage.size(1)
    storage.flush()
    storage.put(1, [item("d")])
    storage.close()
    path = storage.path / "group-1.trees"
    content = path.read_bytes()
    unwritten = left or content[size:-200] + b"\0" * 200
    path.write_bytes(content[:size] + unwritten)
    again = reopened(storage)
    assert names(again, 1) == ["a", "b"]
    (problem,) = again.problems
    assert (problem.offset, problem.size) == (size, len(unwritten))
    assert path.stat().st_size == size


@given(st.data())
def test_a_wrong_byte_anywhere_never_gives_a_wrong_execution(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with GroupStorage(folder) as storage:
            size = sum(storage.put(1, [item(name)]) for name in "ab")
        path = Path(folder) / "group-1.trees"
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
        with GroupStorage(folder) as storage:
            found: list[Item] = []
            try:
                found.extend(storage.get(1))
            except InputError as error:
                assert "damaged" in str(error)  # noqa: PT017
                assert "release the group" in str(error)  # noqa: PT017
            else:
                assert any("torn" in str(problem) for problem in storage.problems)
            for each in found:
                assert_same(each, item(each[0].execution))


def test_damage_in_one_group_takes_no_other_down(storage: GroupStorage) -> None:
    storage.close()
    path = storage.path / "group-1.trees"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    (storage.path / "group-5.trees").write_bytes(b"something of somebody else's")
    (storage.path / "group-6.trees").write_bytes((storage.path / "group-2.trees").read_bytes())
    again = reopened(storage)
    assert [problem.group for problem in again.problems] == [1, 5, 6]
    assert names(again, 2) == ["c"]
    for group in (1, 5, 6):
        with pytest.raises(InputError, match=f"group-{group}.trees: damaged at byte 0; release the group"):
            list(again.get(group))
    assert (storage.path / "group-5.trees").exists()  # it may be worth something to whoever wrote it


@pytest.mark.parametrize("written", [0, 100])
@pytest.mark.parametrize("group", [1, 3])
def test_a_full_disk_is_one_clear_error_and_loses_nothing(
    storage: GroupStorage, monkeypatch: pytest.MonkeyPatch, written: int, group: int
) -> None:
    before = {path.name: path.read_bytes() for path in storage.path.iterdir()}
    real = os.pwrite

    def pwrite(descriptor: int, content: Any, offset: int) -> int:
        if (offset > 0 and len(content) < made) or not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, content[:written], offset)

    made = storage.put(8, [item("d")])
    storage.release(8)
    with monkeypatch.context() as patch:
        patch.setattr(gyre.atomic.os, "pwrite", pwrite)
        with pytest.raises(InputError, match=f"group-{group}.trees: cannot be written .No space left on device.; free"):
            storage.put(group, [item("d")])
    assert {path.name: path.read_bytes() for path in storage.path.iterdir()} == before
    assert storage.groups() == (1, 2)
    storage.put(group, [item("d")])  # once there is space again
    assert names(reopened(storage), group)[-1] == "d"


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"no group storage, holds notes\.txt; give a new or an empty folder"):
        GroupStorage(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "torn or damaged"),
        ("[]", "not of a group storage"),
        ('{"format": "other"}', "not of a group storage"),
        ('{"format": "gyre group storage", "version": 2, "layout": "x"}', "version 2"),
        ('{"format": "gyre group storage", "version": 1, "layout": "other"}', "layout other"),
    ],
)
def test_another_version_is_refused(storage: GroupStorage, content: str, says: str) -> None:
    (storage.path / "storage.json").write_text(content)
    with pytest.raises(InputError, match=says):
        reopened(storage)
    assert (storage.path / "group-1.trees").exists()


def test_a_killed_creation_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".storage.json.123.tmp").write_text("{")
    (tmp_path / ".lock").write_text("123\n")
    with GroupStorage(tmp_path) as storage:
        storage.put(1, [item("a")])
        assert names(storage, 1) == ["a"]


def test_one_process_at_a_time(storage: GroupStorage) -> None:
    with pytest.raises(InputError, match="in use by process"):
        GroupStorage(storage.path)


def test_a_record_with_the_tree_of_another_is_refused(storage: GroupStorage) -> None:
    with pytest.raises(InputError, match="record of 'a' with the tree of 'b'"):
        storage.put(1, [(item("a")[0], item("b")[1])])
    assert names(storage, 1) == ["a", "b"]


def test_a_flush_reaches_every_file_once(storage: GroupStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(descriptor), real(descriptor))[1])
    storage.release(2)
    storage.flush()
    assert len(synced) == 2  # the file of group 1, and the folder
    storage.flush()
    assert len(synced) == 3
