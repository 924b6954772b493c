"""What a store is after its writer was killed, its disk was full, or its bytes were damaged."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import killed_writer
import pytest
from stored_executions import assert_same, big_item, item, part_files

from gyre.errors import InputError
from gyre.trajectory.store import DamagedFileError, TrajectoryStore

STEPS = 120  # more than a change has


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    store = TrajectoryStore.create(tmp_path / "store")
    for execution in "abc":
        store.append([item(execution)])
    return store


def killed_copies(kind: str, store: TrajectoryStore, folder: Path) -> list[Path]:
    """Return copies of a store whose writers were killed before their first step on disk, their second, and so on."""
    copies = [folder / f"killed-{step:03d}" for step in range(1, STEPS)]
    for copy in copies:
        shutil.copytree(store.path, copy)
    run = [sys.executable, killed_writer.__file__, kind, *map(str, copies)]
    killed = int(subprocess.run(run, check=True, capture_output=True, text=True, timeout=300).stdout)
    assert killed < len(copies)
    return copies[:killed]


def test_killed_at_any_step_a_writer_leaves_a_whole_store(store: TrajectoryStore, tmp_path: Path) -> None:
    killed = killed_copies("change", store, tmp_path)
    assert len(killed) > 30
    a_to_c = {execution: item(execution) for execution in "abc"}
    seen = set()
    for step, copy in enumerate(killed):
        found = TrajectoryStore.open(copy)
        assert found.verify() == []
        appended = "d" in found
        assert_same(found.read("b"), killed_writer.NEW_B if appended else a_to_c["b"])
        assert_same(found.read("c"), a_to_c["c"])
        scored = found.read("a")[0].score == 0.125
        assert appended or not scored
        seen.add((appended, scored))
        if step % 3:
            continue
        found.append([killed_writer.D], replace=True)  # the next writer goes on, and clears up
        assert_same(found.read("d"), killed_writer.D)
        assert found.orphans() == []
        assert {path.suffix for path in copy.iterdir()} == {".json", ".parquet"}  # no lock, nothing temporary
    assert seen == {(False, False), (True, False), (True, True)}


def test_killed_at_any_step_a_replacement_leaves_the_old_store_or_the_new(
    store: TrajectoryStore, tmp_path: Path
) -> None:
    seen = set()
    for step, copy in enumerate(killed_copies("replace", store, tmp_path)):
        found = TrajectoryStore.open(copy)
        assert found.verify() == []
        executions = "".join(found.executions()["execution"])
        assert_same(found.read(executions[-1]), item(executions[-1]))
        seen.add(executions)
        if step % 3 == 0:
            found.append([item("e")])  # the next writer goes on, and clears up
            assert found.orphans() == []
    assert seen == {"abc", "d"}


def test_killed_while_it_is_made_a_store_can_be_made_again(tmp_path: Path) -> None:
    (tmp_path / ".manifest.json.123.tmp").write_text("{")
    (tmp_path / ".lock").write_text("123\n")
    TrajectoryStore.create(tmp_path).append([item("a")])
    assert_same(TrajectoryStore.open(tmp_path).read("a"), item("a"))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the system refuse to write larger files, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_store_as_it_was(store: TrajectoryStore) -> None:
    before = {path.name: path.read_bytes() for path in store.path.iterdir()}
    with files_of_at_most(100_000), pytest.raises(InputError, match="cannot be written"):
        store.append([item("d"), big_item("big")])
    assert {path.name: path.read_bytes() for path in store.path.iterdir()} == before
    store.append([item("d"), big_item("big")])
    assert_same(store.read("big"), big_item("big"))


def test_a_disk_that_refuses_at_any_moment_leaves_a_whole_store(
    store: TrajectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, real = 0, os.fsync

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    outcomes = []
    for refused in range(1, 100):  # noqa: B007
        calls = 0
        try:
            store.append([killed_writer.NEW_B], replace=True)
            break
        except InputError:
            pass
        assert store.verify() == []
        assert store.orphans() == []
        outcomes.append(store.read("b")[1].tokens.tolist() == killed_writer.NEW_B[1].tokens.tolist())
    # Parts, catalogue and manifest: a file and its folder each. After its rename the manifest is in force.
    assert outcomes == [False] * 7 + [True]


@pytest.mark.parametrize("table", [0, 1])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_part_takes_no_other_down(store: TrajectoryStore, table: int, damage: str) -> None:
    path = part_files(store, "b")[table]
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content if damage == "flip" else content[:-1])
    (problem,) = store.verify()
    assert problem.path == path
    assert problem.executions == ("b",)
    with pytest.raises(InputError, match=f"{path.name}: (damaged|missing)"):
        store.read("b")
    for execution in "ac":
        assert_same(store.read(execution), item(execution))
    store.append([item("b")], replace=True)
    assert store.verify() == []


@pytest.mark.parametrize("position", range(0, 1000, 37))
def test_no_flipped_byte_goes_unnoticed(store: TrajectoryStore, position: int) -> None:
    path = part_files(store, "b")[0]
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(DamagedFileError):
        store.read("b")


def test_damage_is_not_copied(store: TrajectoryStore, tmp_path: Path) -> None:
    target = TrajectoryStore.create(tmp_path / "target")
    path = part_files(store, "c")[0]
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(DamagedFileError, match="its checksum is another"):
        target.merge([store])
    assert len(target) == 0
    assert {path.name for path in target.path.glob("nodes-*")} == set()


def test_a_damaged_catalogue_says_so(store: TrajectoryStore) -> None:
    (path,) = store.path.glob("executions-*")
    assert len(store) == 3  # so it was whole once, and this reader knows what it held
    path.write_bytes(path.read_bytes()[:-1])
    assert [problem.executions for problem in store.verify()] == [("a", "b", "c")]
    with pytest.raises(InputError, match=r"executions-\d+\.parquet: damaged"):
        TrajectoryStore.open(store.path)
    path.unlink()
    with pytest.raises(InputError, match=r"executions-\d+\.parquet: missing"):
        TrajectoryStore.open(store.path)
