"""The runner of `benchmarks/gpu_cell.py`: whatever becomes of a check, its line is there and nothing of it is left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from gpu_cell_runner import Outcome, Verdict, run_apart, table

BENCHMARKS = sys.path[-1]

PREFACE = f"""
import os, subprocess, sys, time
from pathlib import Path
sys.path.append({BENCHMARKS!r})
from gpu_cell_runner import CannotRunError, report
def work(sheet):
    sheet.note(found=1)
"""


def outcome(folder: Path, body: str, limit_s: float = 60.0) -> Outcome:
    """Run a check whose work ends with `body`."""
    result = folder / "result.json"
    program = f"{PREFACE}    {body}\nreport('it', work, Path({str(result)!r}))"
    return run_apart("it", [sys.executable, "-c", program], result, folder / "log", limit_s)


@pytest.mark.parametrize(
    ("body", "verdict", "reason"),
    [
        ("sheet.within('gap', 1.0, 2.0)", Verdict.OK, ""),
        ("sheet.within('gap', 3.0, 2.0)", Verdict.FAILED, "gap is 3, above 2"),
        ("sheet.within('gap', float('nan'), 2.0)", Verdict.FAILED, "gap is nan, above 2"),
        ("sheet.holds('same', False)", Verdict.FAILED, "same: no"),
        ("raise ValueError('wrong')", Verdict.FAILED, "ValueError: wrong"),
        ("raise CannotRunError('one GPU, and it takes two')", Verdict.UNRUN, "one GPU, and it takes two"),
        ("import no_such_package", Verdict.UNRUN, "package no_such_package is not installed"),
        (
            "print('last words', flush=True); os.abort()",
            Verdict.FAILED,
            "killed by signal 6; its last line: last words",
        ),
        ("os._exit(3)", Verdict.FAILED, "exit status 3; its last line: found 1"),
        ("os._exit(0)", Verdict.FAILED, "it did not get to its end"),
    ],
)
def test_every_end_has_its_verdict_and_keeps_the_figures(
    tmp_path: Path, body: str, verdict: Verdict, reason: str
) -> None:
    found = outcome(tmp_path, body)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert found.figures["found"] == 1


def test_one_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    """Engines lead process groups of their own; a killed check must not leave one on the GPU."""
    note = tmp_path / "pid"
    body = (
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True);"
        f"Path({str(note)!r}).write_text(str(child.pid)); time.sleep(600)"
    )
    found = outcome(tmp_path, body, limit_s=8.0)
    assert (found.verdict, found.killed, found.figures) == (Verdict.FAILED, True, {"found": 1})
    assert "killed after its 8 s" in found.reason
    child = Path(f"/proc/{note.read_text()}/stat")
    assert not child.exists() or child.read_text().split()[2] == "Z", "ended, perhaps not reaped"


def test_a_program_that_cannot_start_is_a_failed_check(tmp_path: Path) -> None:
    found = run_apart("it", [sys.executable, "no_such_file.py"], tmp_path / "result", tmp_path / "log", 60.0)
    assert found.verdict is Verdict.FAILED
    assert "exit status 2" in found.reason


def test_the_table_says_all_and_counts() -> None:
    lines = table([Outcome("one", Verdict.OK), Outcome("another", Verdict.UNRUN, "no CUDA")]).splitlines()
    assert [line.split()[0] for line in lines] == ["one", "another", "1"]
    assert "no CUDA" in lines[1]
    assert lines[-1] == "1 ok, 0 failed, 1 could not run"
