"""Files and folders that are whole or not there, and what killed processes leave of them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gyre.atomic import write_atomic, write_folder_atomic, write_text_atomic
from gyre.errors import InputError

_KILLED = """
import os, signal, sys
from pathlib import Path
from gyre.atomic import write_atomic, write_folder_atomic

def half(temporary):
    (temporary / "part" if temporary.is_dir() else temporary).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

{write}(Path(sys.argv[1]), half)
"""


def killed_while(write: str, path: Path) -> list[Path]:
    """Return what a process leaves that is killed in the middle of writing `path`."""
    before = set(path.parent.iterdir())
    subprocess.run([sys.executable, "-c", _KILLED.format(write=write), str(path)], check=False)
    return [file for file in path.parent.iterdir() if file not in before]


def test_what_a_killed_process_left_of_a_file_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    (left,) = killed_while("write_atomic", path)
    assert left.read_text() == "half"
    others = [tmp_path / f".{name}" for name in ("b.jsonl.999999.tmp", "a.jsonl.tmp", "a.jsonl.x.tmp", "a.jsonl.9.old")]
    for other in others:
        other.write_text("not ours")
    write_text_atomic(path, "whole")
    assert path.read_text() == "whole"
    assert {file.name for file in tmp_path.iterdir()} == {path.name, *(other.name for other in others)}


def test_what_a_killed_process_left_of_a_folder_is_removed_by_the_next(tmp_path: Path) -> None:
    (left,) = killed_while("write_folder_atomic", tmp_path / "results")
    assert left.is_dir()
    write_folder_atomic(tmp_path / "results", lambda folder: (folder / "file").write_text("whole"))
    assert [file.name for file in tmp_path.iterdir()] == ["results"]


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    mine = tmp_path / f".a.txt.{os.getppid()}.tmp"
    mine.write_text("half")
    write_text_atomic(tmp_path / "a.txt", "whole")
    assert mine.exists()


def test_what_a_process_of_another_machine_holds_stays(tmp_path: Path) -> None:
    (left,) = killed_while("write_atomic", tmp_path / "a.txt")  # its id is free here
    with left.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_text_atomic(tmp_path / "a.txt", "whole")
        assert left.exists()
    write_text_atomic(tmp_path / "a.txt", "whole")
    assert not left.exists()


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    for name in ("there", "dangling"):
        (tmp_path / "there").write_text("old")
        link = tmp_path / f"{name}-link"
        link.symlink_to(name)
        write_text_atomic(link, "new")
        assert link.is_symlink()
        assert (tmp_path / name).read_text() == "new"


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fails(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="cannot be written"):
        write_atomic(tmp_path / "a.txt", fails)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"none/a\.txt: cannot be written \(No such file"):
        write_text_atomic(tmp_path / "none" / "a.txt", "text")


def test_the_mode_of_a_file_is_as_the_process_makes_files(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_text_atomic(tmp_path / "atomic", "")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a folder is moved aside for a moment")
def test_a_folder_that_is_replaced_is_never_missing(tmp_path: Path) -> None:
    """Its reader finds the old one or the new one at every moment: a process killed between would leave one too."""
    target, stop, missing = tmp_path / "folder", threading.Event(), 0

    def look() -> None:
        nonlocal missing
        while not stop.is_set():
            missing += not (target / "content").exists()

    def fill(folder: Path) -> object:
        return (folder / "content").write_text("x")

    write_folder_atomic(target, fill)
    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(300):
        write_folder_atomic(target, fill)
    stop.set()
    reader.join()
    assert missing == 0
    assert os.listdir(tmp_path) == ["folder"]
