"""The worked example of docs/scoring.md, run as it is printed."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from gyre.cli import main

GUIDE = Path(__file__).resolve().parents[2] / "docs/scoring.md"


def blocks() -> list[tuple[str, str]]:
    """Language and text of the code blocks of the section, in order."""
    section = re.search(r"^## Rules\n(.*?)(?=^## |\Z)", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert section is not None
    return re.findall(r"^```(\w+)\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)


def test_the_worked_example_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (_, artefacts), (_, rules), (_, program), (_, check) = blocks()
    subprocess.run(["sh", "-e"], input=artefacts, text=True, check=True)
    Path("example/rules.toml").write_text(rules)
    exec(compile(program, "docs/scoring.md", "exec"), {})
    command, *arguments = shlex.split(check)
    assert command == "gyre"
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "stable" in result.output
