"""The judge of the examples: whatever an agent leaves in place of its notes is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

JUDGE = Path(__file__).parents[2] / "examples" / "judge.py"


def judged(folder: Path) -> list[float]:
    subject = folder / "subject.json"
    subject.write_text(json.dumps({"data": {"doors": ["a", "c", "d", "e"]}}))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(JUDGE)],
        env={"GYRE_SUBJECT": str(subject)},
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=60,
    )
    said = json.loads(done.stdout)
    passed = [check["passed"] for check in said["checks"]]
    assert said["score"] == sum(passed) / 4
    return passed


def left(*words: bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(b"\n".join(words))


@pytest.mark.parametrize(
    ("leave", "passed"),
    [
        (left(b"a", b"c", b"d", b"e"), [1, 1, 1, 1]),
        (left(b"a", b"d", b"d", b"e", b"and on"), [1, 0, 1, 1]),
        (left(b"a", b"\xff\xfe\0", b"d"), [1, 0, 1, 0]),
        (left(b"a", b"c" * 2**24), [1, 0, 0, 0]),
        (lambda file: None, [0, 0, 0, 0]),
        (Path.mkdir, [0, 0, 0, 0]),
        (os.mkfifo, [0, 0, 0, 0]),
        (lambda file: file.symlink_to("/dev/zero"), [0, 0, 0, 0]),
        (lambda file: file.symlink_to("taken"), [0, 0, 0, 0]),
    ],
    ids=["all", "one wrong", "bytes", "huge", "nothing", "folder", "fifo", "endless", "loop"],
)
def test_whatever_is_left_is_judged(leave: Callable[[Path], object], passed: list[float], tmp_path: Path) -> None:
    leave(tmp_path / "taken")
    assert judged(tmp_path) == passed
