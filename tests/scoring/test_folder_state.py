"""The name of a folder's state: equal for equal content, another for every change."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from evaluating import left
from hypothesis import given
from hypothesis import strategies as st

from gyre.scoring.folders import copy_folder, remove_folder
from gyre.scoring.state import StoppedError, folder_digest


def entry(kind: str, mode: int, path: bytes, content: bytes) -> bytes:
    return f"{kind} {mode:o} {len(path)} {len(content)} ".encode() + path + content


def test_it_is_the_sha256_that_its_description_says(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir(mode=0o755)
    (tmp_path / "b" / "f").write_bytes(b"content")
    (tmp_path / "b" / "f").chmod(0o640)
    (tmp_path / "a").symlink_to("b/f")
    parts = (
        entry("link", 0, b"a", b"b/f"),
        entry("folder", 0o755, b"b", b""),
        entry("file", 0o640, b"b/f", hashlib.sha256(b"content").digest()),
        b"special 0",
    )
    assert folder_digest(tmp_path) == f"sha256:{hashlib.sha256(b''.join(parts)).hexdigest()}"


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=4)
TREES = st.dictionaries(NAMES.filter(lambda name: name not in (".", "..")), st.binary(max_size=20), max_size=4)


@given(TREES, TREES)
def test_two_folders_have_one_name_only_if_they_are_equal(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        for folder, tree in ((first, one), (second, dict(reversed(other.items())))):
            for name, content in tree.items():
                (Path(folder) / name).write_bytes(content)
        assert (folder_digest(Path(first)) == folder_digest(Path(second))) == (one == other)


def test_times_do_not_count_and_permissions_do(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("x")
    file.chmod(0o644)
    before = folder_digest(tmp_path)
    os.utime(file, (0, 0))
    assert folder_digest(tmp_path) == before
    file.chmod(0o755)
    assert folder_digest(tmp_path) != before


def test_pipes_and_sockets_are_counted_and_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {folder_digest(tmp_path)}
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    names.add(folder_digest(tmp_path))
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        names.add(folder_digest(tmp_path))
    assert len(names) == 3


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "circle").symlink_to(folder)
    before = folder_digest(folder)
    (outside / "f").write_text("x")
    assert folder_digest(folder) == before


def test_a_very_deep_folder_can_be_named_copied_and_removed(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    below = str(source)
    try:
        for _ in range(1200):  # more than Python calls may nest
            os.mkdir(below)
            below += "/d"
        copy_folder(source, target, threading.Event())
        assert folder_digest(source) == folder_digest(target)
        for folder in (source, target):
            remove_folder(folder)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["rm", "-rf", str(source), str(target)], check=True)  # pytest could not


def test_a_folder_beyond_the_bounds_says_so(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / str(number)).write_bytes(b"12345")
    whole = folder_digest(tmp_path, most_entries=4, most_bytes=20)
    assert whole == folder_digest(tmp_path)
    fewer, smaller = folder_digest(tmp_path, most_entries=3), folder_digest(tmp_path, most_bytes=19)
    assert all(name.startswith("sha256-partial:") for name in (fewer, smaller))
    assert fewer != smaller


def test_it_stops_when_nobody_waits_any_more(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        folder_digest(tmp_path, stop=stop)


def test_what_cannot_be_read_is_named_and_left_out_of_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that becomes a link, or a pipe, or goes away while it is copied is no reason to judge nothing."""
    source = tmp_path / "a"
    source.mkdir()
    for name in ("answer", "closed"):
        (source / name).write_text("x")
    whole, opens = folder_digest(source), os.open

    def refusing(path: object, *arguments: int, **more: int) -> int:
        if os.fsencode(str(path) if isinstance(path, Path) else path).endswith(b"closed"):  # type: ignore[arg-type]
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opens(path, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    named = folder_digest(source)
    assert named.startswith("sha256-partial:")
    assert named == folder_digest(source) != whole
    left_out = copy_folder(source, tmp_path / "b", threading.Event())
    assert (left_out.number, left_out.first) == (1, ["closed"])
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["answer"]


def test_a_disk_that_breaks_is_no_matter_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_text("x")

    def broken(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", broken)
    with pytest.raises(OSError, match="Input/output"):
        folder_digest(tmp_path / "a")
    with pytest.raises(OSError, match="Input/output"):
        copy_folder(tmp_path / "a", tmp_path / "b", threading.Event())


def test_a_copy_keeps_to_its_bounds_and_says_what_it_lacks(tmp_path: Path) -> None:
    source = left(tmp_path / "a", answer="42", z="z" * 8)
    with (source / "large").open("wb") as file:
        file.truncate(2**40)  # no disk has to hold it
    left_out = copy_folder(source, tmp_path / "b", threading.Event(), most_bytes=4)
    assert left_out.first == ["large", "z"]
    assert left_out.sentence.startswith("2 entries could not be read or went beyond the copy's bounds")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["answer"]
    fewer = copy_folder(source, tmp_path / "c", threading.Event(), most_entries=1)
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["answer"]
    assert fewer.number == 2


def test_holes_of_a_file_take_no_space_in_a_copy(tmp_path: Path) -> None:
    source = left(tmp_path / "a")
    with (source / "f").open("wb") as file:
        file.write(b"begin")
        file.truncate(2**26)
        file.seek(2**25)
        file.write(b"middle")
    copy_folder(source, tmp_path / "b", threading.Event())
    assert (tmp_path / "b" / "f").read_bytes() == (source / "f").read_bytes()
    assert (tmp_path / "b" / "f").stat().st_blocks * 512 < 2**24


def test_a_folder_too_deep_to_be_named_is_judged_without_its_depths(tmp_path: Path) -> None:
    source = left(tmp_path / "a", answer="42")
    descriptor = os.open(source, os.O_RDONLY)
    try:
        for _ in range(60):  # of 100 letters each: more than a path may have
            os.mkdir("d" * 100, dir_fd=descriptor)
            below = os.open("d" * 100, os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        assert folder_digest(source).startswith("sha256-partial:")
        assert copy_folder(source, tmp_path / "b", threading.Event()).number == 1
        assert (tmp_path / "b" / "answer").read_text() == "42"
        for folder in (source, tmp_path / "b"):
            remove_folder(folder)
        assert list(tmp_path.iterdir()) == []
    finally:
        os.close(descriptor)
        subprocess.run(["rm", "-rf", str(source), str(tmp_path / "b")], check=True)
