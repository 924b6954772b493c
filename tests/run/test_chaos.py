"""Runs that are killed with -9 at random points, local and simulated: they come to the end that they would have had.

GYRE_CHAOS_KILLS sets how often each is killed; `benchmarks/chaos.py` does it 200 times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

KILLS: Final = int(os.environ.get("GYRE_CHAOS_KILLS", "20"))


def tally(program: str, *arguments: object) -> dict[str, Any]:
    """What a program of this folder came to."""
    command = [sys.executable, Path(__file__).with_name(program), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_local_run_survives_kills_at_any_point(tmp_path: Path) -> None:
    """Its rules are held in `chaos.py`: nothing lost, nothing done twice, the same end where that is defined."""
    found = tally("chaos.py", tmp_path, "--kills", KILLS)
    assert found["killed"] >= KILLS
    assert found["finished_before"] > 0


def test_a_simulated_run_survives_ends_at_any_point(tmp_path: Path) -> None:
    found = tally("chaos_simulated.py", tmp_path, "--cuts", KILLS, "--kills", max(2, KILLS // 10))
    assert found["killed"] >= 2
    assert found["differ"] == []
