"""The guide's blocks run as they are printed, one after the other, and print what their comments say."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from gyre.cli import main
from gyre.trajectory.exchange import formats

GUIDE = Path(__file__).resolve().parents[2] / "docs/trajectories.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^print\(.*\)  # (.*)$", re.MULTILINE)


def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) >= 5
    for kind, text in blocks:
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, str(GUIDE), "exec"), names)
            assert out.getvalue().splitlines() == PRINTED.findall(text)
        else:
            for line in text.splitlines():
                _, *arguments = shlex.split(line)
                result = CliRunner().invoke(main, arguments)
                assert result.exit_code == 0, (line, result.output)
    assert {"store", "tree.html", "samples.jsonl", "page.html"} <= {file.name for file in tmp_path.iterdir()}


def test_every_format_is_in_the_table() -> None:
    table = GUIDE.read_text(encoding="utf-8")
    assert [name for name in formats() if f"`{name}`" not in table] == []
