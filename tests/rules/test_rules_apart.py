"""A process that looks at artefacts may die of them, or be broken itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from rules_files import artefacts, broken, judged

from gyre.scoring.limits import Limits
from gyre.scoring.rules import apart

RULE = {"kind": "regex", "answer": True, "pattern": "a"}


def test_using_up_the_memory_is_a_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_LIMITS", Limits(memory_bytes=1))
    passed, detail = judged(tmp_path, RULE, answer="a")
    assert passed == 0.0
    assert "cannot be looked at: used more memory" in detail


@pytest.mark.parametrize(
    ("program", "is_zero", "said"),
    [
        ("import os; os.abort()", True, "cannot be looked at: killed by SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", False, "killed by SIGKILL"),
        ("raise OSError('no space left')", False, "no space left"),
        ("pass", False, "without a result"),
        ("print('{}')", False, "without a result"),
        ("print('[1]')", False, "without a result"),
        ("print('5')", False, "without a result"),
    ],
)
def test_crashes_are_zeros_and_what_we_do_wrong_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, is_zero: bool, said: str
) -> None:
    artefacts(tmp_path)
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(apart, "_PROGRAM", tmp_path / "program.py")
    told = judged(tmp_path, RULE, answer="a")[1] if is_zero else broken(tmp_path, RULE, answer="a")
    assert said in told
