"""The blocks of docs/models.md that are marked as a console or as Python run as they are printed."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="models need torch")
pytest.importorskip("transformers", reason="models are made with transformers")
pytest.importorskip("megatron.core", reason="models are built with megatron-core: pip install 'gyre[real]'")

from gyre.cli import main

GUIDE = Path(__file__).resolve().parents[2] / "docs/models.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)


def test_the_guide_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands end well, and what Python prints is what its comments say."""
    monkeypatch.chdir(tmp_path)
    for kind, text in BLOCK.findall(GUIDE.read_text("utf-8")):
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, str(GUIDE), "exec"), {})
            assert out.getvalue().splitlines() == PRINTED.findall(text)
            continue
        for line in text.splitlines():
            _, command, *arguments = shlex.split(line)
            assert command == "gyre"
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, (line, result.output)
    assert {"tiny", "wide", "rounded", "again"} == {file.name for file in tmp_path.iterdir()}
