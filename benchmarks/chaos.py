"""Kills a local and a simulated run at random points, and counts what was lost, done twice or different at the end.

The programs and the rules that they hold are those of the tests (`tests/run/chaos.py`, `tests/run/chaos_simulated.py`):
a rule that is broken ends them with an error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

PROGRAMS: Final = Path(__file__).resolve().parents[1] / "tests" / "run"


def main() -> None:
    """Print the tally."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of the local run; ends of the simulated one")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    table = Table("", "what", title=f"{given.kills} kills of each, seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder:
        local = run("chaos.py", folder, "--kills", given.kills, "--seed", given.seed)
        by_kill = ", ".join(f"{count} {how}" for how, count in local["kills"].items())
        table.add_row("local run", f"killed {local['killed']} times over {local['runs']} runs in {local['seconds']} s")
        table.add_row("", by_kill)
        table.add_row("", f"{local['orphans']} harnesses outlived their driver and were ended when it came back")
        table.add_row("", f"{local['finished_before']} executions had ended before a kill; none ran again")
        table.add_row("", f"{local['cut_bytes']:,} bytes of journals lost with the power")
        killed = max(2, given.kills // 10)
        simulated = run(
            "chaos_simulated.py", folder, "--cuts", given.kills - killed, "--kills", killed, "--seed", given.seed
        )
        ended = f"cut at {simulated['cuts']} points, killed {simulated['killed']} times in {simulated['seconds']} s"
        table.add_row("simulated run", ended)
        table.add_row("", f"{len(simulated['differ'])} journals or summaries that differ from the undisturbed run's")
    Console().print(table)


def run(program: str, *arguments: object) -> dict[str, Any]:
    """Run one program; return its tally, with its seconds."""
    begun = time.monotonic()
    command = [sys.executable, str(PROGRAMS / program), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "seconds": round(time.monotonic() - begun)}


if __name__ == "__main__":
    main()
