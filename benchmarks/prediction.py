"""Predict the wall time of real runs from one other real run, and say how wrong that is.

    python benchmarks/prediction.py ASYNC --predict ELASTIC COLOCATE [--own-workload] [--json]

Each argument is the folder of a finished `gyre run` of the same tasks on the same cells. The hardware is measured on
the first run and its executions are the workload; policy, cells, capacity and sizes are each run's own. Nothing of a
predicted run but these settings is used. With `--own-workload` its own executions are replayed instead, which shows
what of the error comes from lengths of replies that differ between runs.

Wall time is from when the cells were up to the last update: starting engines is left out. Measure on a quiet machine,
cells pinned to CPUs of their own, and repeat a run to know how much wall time differs by itself.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gyre.sim.calibration import Calibration, calibrate, compared, same_settings, simulated
from gyre.workload.recorded_run.folder import RunFolder

GOAL = 0.10  # of the wall time


def predict(calibration: Calibration, workload: Path, path: Path) -> dict[str, object]:
    """Return what a run took and what is predicted for it, by figure."""
    with RunFolder(path) as run:
        settings = same_settings(run.history, workload)
        resumed = run.history.resumed
    predicted, _ = simulated(settings, calibration.profile)
    rows = compared(calibrate(path).recorded, predicted)
    figures = {row.name: row.to_json() for row in rows}
    return {
        "run": str(path),
        "policy": settings.policy,
        "steps": settings.training.steps,
        "resumed": resumed,
        **figures,
    }


def table(rows: list[dict[str, object]]) -> Table:
    """Return the predictions for people."""
    shown = Table(title="wall time without the start of engines, s")
    for name in ("run", "policy", "steps", "measured", "predicted", "error", "error of a step"):
        shown.add_column(name, justify="left" if name in ("run", "policy") else "right")
    for row in rows:
        wall, step = row["wall time"], row["step"]
        assert isinstance(wall, dict)
        assert isinstance(step, dict)
        error = f"{wall['error']:+.1%}{'' if abs(wall['error']) <= GOAL else ' !'}"
        cells = (f"{wall['measured']:.1f}", f"{wall['simulated']:.1f}", error, f"{step['error']:.1%}")
        shown.add_row(str(row["run"]), str(row["policy"]), str(row["steps"]), *cells)
    return shown


def main() -> None:
    """Measure, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="measured: its hardware and its workload")
    parser.add_argument("--predict", type=Path, nargs="+", default=[], metavar="RUN", help="runs to predict")
    parser.add_argument("--own-workload", action="store_true", help="replay each predicted run's own executions")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    calibration = calibrate(arguments.run)
    rows = [
        predict(calibration, path if arguments.own_workload else arguments.run, path)
        for path in (arguments.run, *arguments.predict)
    ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    console = Console()
    console.print(table(rows))
    for note in calibration.notes:
        console.print(note)


if __name__ == "__main__":
    main()
