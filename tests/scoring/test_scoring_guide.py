"""The first example of docs/scoring.md, run as it is printed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from gyre.cli import main
from gyre.scoring.limits import Limits
from gyre.scoring.settings import read_evaluator_settings

GUIDE = (Path(__file__).resolve().parents[2] / "docs/scoring.md").read_text("utf-8")


def without_times(table: str) -> list[str]:
    """Lines without trailing blanks, times struck out."""
    return [re.sub(r"\d+\.\d+(?=$| )", "-", line.rstrip(), count=0) for line in table.strip().splitlines()]


def test_the_first_example_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = re.search(r"^## A first score\n(.*?)(?=^## )", GUIDE, re.MULTILINE | re.DOTALL)
    assert section is not None
    blocks = re.findall(r"^```\w+\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)
    artefacts, settings, command, printed = blocks
    monkeypatch.chdir(tmp_path)
    subprocess.run(["sh", "-e"], input=artefacts, text=True, check=True)
    Path("judge.toml").write_text(settings)
    program, *arguments = shlex.split(command)
    assert program == "gyre"
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert without_times(result.output) == without_times(printed)
    assert read_evaluator_settings(Path("judge.toml")).kind == "command"
    (first, second) = map(json.loads, Path("scores.jsonl").read_text().splitlines())
    assert (first["score"], second["score"]) == (1.0, 0.0)


@pytest.mark.parametrize("name", Limits.model_fields)
def test_every_limit_is_explained(name: str) -> None:
    assert f"`{name}`" in GUIDE
