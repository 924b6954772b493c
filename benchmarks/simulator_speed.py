"""What a simulated run costs: CPU time, memory, growth with the number of calls, and against plain SimPy, in one run.

The whole run is 512 executions at once of 300 calls each, for 48 steps on 8 cells under the elastic policy: controller,
SimPy control plane and compiled serving model, its journal kept in a list. The serving model alone then replays one
wave of the same executions beside the same model as SimPy processes (`simpy_processes.py`); every execution must end at
the same time in both. Times are CPU-seconds after a warm-up run that compiles.

    python benchmarks/simulator_speed.py [--steps 48] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from reference_workload import CALLS, CELLS, EXECUTIONS, elastic_run, program_of_groups
from rich.console import Console
from rich.table import Table
from simpy_processes import Serving

from gyre.events import ExecutionFinished
from gyre.journal import Entry
from gyre.sim.run import Run
from gyre.sim.serving import EngineSpec, ServingModel
from gyre.workload.program import Program

GOAL_CPU_S, GOAL_RATIO, GOAL_MIB = 10.0, 8.0, 1000.0
TOLERANCE = 1e-9  # relative, of the time at which an execution ends
REPEATS = 3  # of the compiled replay, which is short

T = TypeVar("T")


@dataclass(frozen=True)
class WholeRun:
    """One simulated run."""

    steps: int
    calls: int  # of executions that ended
    cpu_s: float
    simulated_h: float
    peak_mib: float  # of this process so far, interpreter and libraries included


@dataclass(frozen=True)
class Replays:
    """One wave of executions, served by the compiled model and by SimPy processes."""

    calls: int
    compiled_cpu_s: float
    simpy_cpu_s: float
    largest_difference: float  # of an execution's end, relative

    @property
    def ratio(self) -> float:
        """CPU time of SimPy over that of the compiled model."""
        return self.simpy_cpu_s / self.compiled_cpu_s


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what `work` returns, and the CPU-seconds that it took."""
    began_s = time.process_time()
    result = work()
    return result, time.process_time() - began_s


def whole_run(program: Program, steps: int) -> WholeRun:
    """Simulate `steps` steps and keep the journal."""
    entries: list[Entry] = []
    run: Run = elastic_run(program, steps)
    _, cpu_s = timed(lambda: run.simulate(entries.append))
    ended = sum(isinstance(entry, ExecutionFinished) for entry in entries)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return WholeRun(steps, ended * program.calls // program.executions, cpu_s, entries[-1].time_s / 3600, peak_mib)


def replay(program: Program, engine: EngineSpec) -> dict[int, float]:
    """Run every execution once, all at one time, in the compiled model; return when each ended, in seconds."""
    model = ServingModel(program, [engine] * CELLS)
    for index in range(CELLS):
        model.open(index)
    for row, setup_s in enumerate(program.setup_s.tolist()):
        model.start(row, row, setup_s=setup_s, harness_deadline_s=np.inf, overall_deadline_s=np.inf)
    ends_s = {}
    while (ended := model.advance(np.inf)) is not None:
        ends_s[ended.execution] = ended.time_s
    return ends_s


def replays(program: Program, engine: EngineSpec) -> Replays:
    """Serve one wave in both models; raise AssertionError where they disagree on when an execution ends."""
    compiled = [timed(lambda: replay(program, engine)) for _ in range(REPEATS)]
    ends_s, compiled_s = compiled[0][0], float(np.median([cpu_s for _, cpu_s in compiled]))
    expected_s, simpy_s = timed(Serving(program, [engine] * CELLS).run)
    assert ends_s.keys() == expected_s.keys()
    difference = max(abs(end_s / expected_s[row] - 1) for row, end_s in ends_s.items())
    assert difference <= TOLERANCE, f"the two models disagree: an execution's end differs by {difference:.1e}"
    return Replays(program.calls, compiled_s, simpy_s, difference)


def table(runs: list[WholeRun], both: Replays) -> Table:
    """The figures as a table, goals beside those that have one."""
    rows = Table("", "calls", "CPU-s", "us a call", "goal", title="Cost of a simulated run")
    for column in rows.columns[1:]:
        column.justify = "right"

    def add(name: str, calls: int, cpu_s: float, goal: str = "") -> None:
        rows.add_row(name, f"{calls:,}", f"{cpu_s:.2f}", f"{cpu_s / calls * 1e6:.2f}", goal)

    for run in runs:
        add(
            f"whole run, {run.steps} steps", run.calls, run.cpu_s, f"<= {GOAL_CPU_S:g} CPU-s" if run is runs[-1] else ""
        )
    add("serving alone, compiled", both.calls, both.compiled_cpu_s)
    add("serving alone, SimPy", both.calls, both.simpy_cpu_s)
    rows.add_section()
    rows.add_row("SimPy / compiled", "", f"{both.ratio:.0f} x", "", f">= {GOAL_RATIO:g} x")
    rows.add_row("ends differ by at most", "", f"{both.largest_difference:.0e}", "", f"<= {TOLERANCE:.0e}")
    rows.add_row("peak memory", "", f"{runs[-1].peak_mib:.0f} MiB", "", f"< {GOAL_MIB:g} MiB")
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--steps", type=int, default=48, help="steps of the largest run; half and a quarter come before"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    arguments = parser.parse_args()
    whole_run(program_of_groups(groups=8, calls=30), steps=4)
    program = program_of_groups()
    runs = [whole_run(program, max(1, arguments.steps // part)) for part in (4, 2, 1)]
    both = replays(program, elastic_run(program, 1).hardware.engine_spec())
    Console().print(table(runs, both))
    print(f"{EXECUTIONS} executions at once, {CALLS} calls each, {CELLS} cells; {runs[-1].simulated_h:.0f} h simulated")
    if arguments.json:
        figures = {"whole_runs": [asdict(run) for run in runs], "serving": asdict(both) | {"ratio": both.ratio}}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
