"""The command line of `benchmarks/gpu_cell.py`: what cannot be is said in one line before a check begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "gpu_cell.py"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--out", "file/folder"), "--out {here}/file/folder: cannot be made (Not a directory); give another folder"),
        (("empty",), "error: empty: no Hugging Face folder: it has no config.json"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments, "--device", "cpu", "--only", "machine"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1] == f"gpu_cell.py: {says.format(here=tmp_path)}"
    assert "machine ..." not in done.stderr, "a check has begun"
