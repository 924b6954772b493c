"""A whole step from its call log to micro-steps: seconds by stage, and peak memory against the largest group alone.

Writes the calls of 64 made-up executions (8 groups of 8) into a log in a temporary folder. Then, in a process each, for
the largest group and for all: builds a store from the log, counts, and packs rows and trees. A process that only loads
the libraries shows what of the memory is theirs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from trajectory_workload import step

from gyre.trajectory.advantages import Baseline
from gyre.trajectory.call import CallRecord
from gyre.trajectory.call_log import CallLog, CallLogWriter
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.selection import Selection
from gyre.trajectory.store import TrajectoryStore
from gyre.trajectory.streaming import build_store, packed_micro_steps, step_totals
from gyre.trajectory.tree import Refusal

TOKEN_BUDGET: Final = 262_144
SELECTION: Final = Selection()
BASELINE: Final = Baseline.MEAN


@dataclass(frozen=True)
class Measured:
    """What a process that handled some groups took."""

    peak_bytes: int
    seconds: dict[str, float]
    counts: dict[str, float]


class GroupsOf:
    """The executions of some groups of a log."""

    def __init__(self, log: CallLog, groups: Sequence[str]) -> None:
        self._log, self._groups = log, groups

    def executions(self) -> tuple[ExecutionRecord, ...]:
        """Return those of the groups."""
        return tuple(record for record in self._log.executions() if record.group in self._groups)

    def read(self, execution: str) -> Iterator[CallRecord | Refusal]:
        """Read as the log does."""
        return self._log.read(execution)


def main() -> None:
    """Write the log, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=64)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--measure", nargs="*", metavar="GROUP", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        json.dump(asdict(measure(options.folder, options.measure)), sys.stdout)
        return
    with tempfile.TemporaryDirectory() as folder:
        tokens = write_log(Path(folder) / "step.calls", options.executions, options.groups)
        nothing = measured_apart(Path(folder), [])
        largest = measured_apart(Path(folder), [max(tokens, key=tokens.__getitem__)])
        whole = measured_apart(Path(folder), list(tokens))
    for name, found in (("nothing", nothing), ("largest group", largest), ("all groups", whole)):
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in found.seconds.items())
        counts = ", ".join(f"{count:,.4g} {what}" for what, count in found.counts.items())
        sys.stdout.write(f"{name}: peak {found.peak_bytes / 2**20:.0f} MiB; {stages}; {counts}\n")
    own = (whole.peak_bytes - nothing.peak_bytes) / (largest.peak_bytes - nothing.peak_bytes)
    ratio = whole.peak_bytes / largest.peak_bytes
    sys.stdout.write(f"peak of all groups: {ratio:.2f} x that of the largest; {own:.2f} x without the libraries'\n")


def write_log(path: Path, executions: int, groups: int) -> dict[str, int]:
    """Write the step's calls and records; return each group's unique tokens."""
    tokens: dict[str, int] = {}
    calls, inputs, seconds = 0, 0, 0.0
    with CallLogWriter(path) as writer:
        for record, workload in step(executions, groups):
            start = time.perf_counter()
            for call in workload.records:
                writer.append(call)
            writer.append_execution(record)
            seconds += time.perf_counter() - start
            tokens[record.group] = tokens.get(record.group, 0) + workload.counts.unique_tokens
            calls, inputs = calls + workload.counts.calls, inputs + workload.counts.input_tokens
    unique = sum(tokens.values())
    sys.stdout.write(
        f"log: {executions} executions, {calls:,} calls, {inputs / 1e6:,.0f} M input tokens, {unique / 1e6:.1f} M "
        f"unique; {path.stat().st_size / unique:.2f} B per unique token, written in {seconds:.1f} s\n"
    )
    return tokens


def measured_apart(folder: Path, groups: Sequence[str]) -> Measured:
    """Measure in a process of its own."""
    run = [sys.executable, __file__, "--folder", str(folder), "--measure", *groups]
    return Measured(**json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout))


def measure(folder: Path, groups: Sequence[str]) -> Measured:
    """Build a store of the groups and pack them, both ways."""
    seconds: dict[str, float] = {}
    counts: dict[str, float] = {}
    if groups:
        store = TrajectoryStore.create(folder / f"store-{len(groups)}")
        with CallLog(folder / "step.calls") as log, Stage(seconds, "store"):
            report = build_store(GroupsOf(log, groups), store)
        counts["unique tokens"], counts["B per unique token"] = report.unique_tokens, report.size / report.unique_tokens
        with Stage(seconds, "count"):
            totals = step_totals(store, SELECTION, BASELINE)
        counts["trained tokens"] = totals.trained_tokens
        for packing in ("rows", "tree"):
            with Stage(seconds, f"pack {packing}"):
                steps = packed_micro_steps(store, SELECTION, BASELINE, TOKEN_BUDGET, packing, totals=totals)
                counts[f"tokens in micro-steps of {packing}"] = total(map(len, steps))
    return Measured(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, seconds, counts)


def total(lengths: Iterable[int]) -> int:
    """Sum lengths one by one, with no micro-step kept."""
    return sum(lengths)


class Stage:
    """Times a stage."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        """Begin."""
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        """End."""
        self._seconds[self._name] = time.perf_counter() - self._start


if __name__ == "__main__":
    main()
