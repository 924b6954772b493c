"""A function of Python as evaluator, in a process of its own."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from evaluating import evaluated, left, settings_of, subject_of

from gyre.scoring.evaluation import Evaluation


def judged(tmp_path: Path, code: str, **more: Any) -> Evaluation:
    left(tmp_path / "task", judging__py=textwrap.dedent(code))
    folder = left(tmp_path / "artefacts", answer="42", json__py="raise ImportError('the policy wrote this')")
    settings = settings_of("python", function="judging:judge", path=[str(tmp_path / "task")], **more)
    return evaluated(settings, subject_of(folder, data={"expected": "42"}))


@pytest.mark.parametrize(
    ("code", "score"),
    [
        ("def judge(s): return float((s.folder / 'answer').read_text() == s.data['expected'])", 1.0),
        ("def judge(s): print('a word', flush=True); return {'score': 0.5}", 0.5),
        ("async def judge(s): return 0", 0.0),
        ("from gyre.scoring.evaluation import *\ndef judge(s): return Evaluation(True, 0.25)", 0.25),
        ("import json\ndef judge(s): return json.loads('1')", 1.0),  # the policy's own json.py is not found
    ],
)
def test_what_the_function_returns_is_the_score(code: str, score: float, tmp_path: Path) -> None:
    evaluation = judged(tmp_path, code)
    assert (evaluation.valid, evaluation.score) == (True, score), evaluation


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def judge(s): return 'good'", "score is 'good', expected a number"),
        ("def judge(s): return float('nan')", "expected a finite number"),
        ("def judge(s): raise KeyError('expected')", "KeyError: 'expected'"),
        ("import sys\ndef judge(s): sys.exit(0)", "it wrote no result"),
        ("import os\ndef judge(s): os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("import ctypes\ndef judge(s): ctypes.string_at(0)", "killed by SIGSEGV"),
        ("def other(s): return 1", "function judging:judge cannot be loaded"),
        ("raise RuntimeError('at import')", "RuntimeError: at import"),
        ("import time\ndef judge(s): time.sleep(1000)", "not done within its time limit"),
    ],
)
def test_a_function_that_fails_is_not_valid(code: str, why: str, tmp_path: Path) -> None:
    evaluation = judged(tmp_path, code, limits={"wall_s": 5, "grace_s": 0})
    assert (evaluation.valid, evaluation.score) == (False, None)
    assert why in evaluation.reason
