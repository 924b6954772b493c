"""How fast a log of calls is written and read, and how small it is: `python benchmarks/call_log_speed.py [PRESET]`.

Compared, in one process, with plain files: each call's input and output written whole, as arrays, without checks.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from trajectory_workload import PRESETS, Workload, generate

from gyre.trajectory.call_log import CallLog, CallLogWriter
from gyre.trajectory.execution import ExecutionRecord

REPEATS = 3


def seconds(work: Callable[[], object]) -> float:
    """Return the shortest of several runs."""
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)


def write_plain(workload: Workload, path: Path) -> None:
    """Write every array of every call as it is."""
    with path.open("wb", buffering=0) as file:
        for call in workload.records:
            file.write(call.input_ids.data)
            file.write(call.output_ids.data)
            if call.logprobs is not None:
                file.write(call.logprobs.data)


def write_log(workload: Workload, path: Path) -> None:
    """Write the log anew."""
    path.unlink(missing_ok=True)
    with CallLogWriter(path) as writer:
        for call in workload.records:
            writer.append(call)
        writer.append_execution(ExecutionRecord(workload.execution, "group", 1.0))


def read_log(path: Path, execution: str) -> int:
    """Read every call, and return how many."""
    with CallLog(path) as log:
        return sum(1 for _ in log.calls(execution))


def open_log(path: Path) -> None:
    """Walk over the headers alone."""
    with CallLog(path) as log:
        log.executions()


def verify_log(path: Path) -> None:
    """Check every byte."""
    with CallLog(path) as log:
        if log.verify():
            raise SystemExit("the log is damaged")


def main() -> None:
    """Print the figures of one preset."""
    preset = sys.argv[1] if len(sys.argv) > 1 else "1x"
    workload = generate(PRESETS[preset], own_buffers=True)
    counts = workload.counts
    with tempfile.TemporaryDirectory() as folder:
        plain, path = Path(folder) / "plain", Path(folder) / "run.calls"
        plain_s = seconds(lambda: write_plain(workload, plain))
        write_s = seconds(lambda: write_log(workload, path))
        read_s = seconds(lambda: read_log(path, workload.execution))
        open_s, verify_s = seconds(lambda: open_log(path)), seconds(lambda: verify_log(path))
        whole, size = plain.stat().st_size, path.stat().st_size
    sys.stdout.write(
        f"{preset}: {counts.calls} calls, {counts.input_tokens / 1e6:.1f} M input tokens, "
        f"{counts.unique_tokens / 1e6:.3f} M unique\n"
        f"size  {size / 1e6:.1f} MB of {whole / 1e6:.1f} MB of arrays: {size / counts.unique_tokens:.1f} B a unique "
        f"token\n"
        f"write {write_s * 1e3:.0f} ms with fsync, {write_s / counts.calls * 1e6:.0f} us a call, "
        f"{whole / write_s / 1e6:.0f} MB of arrays/s ({write_s / plain_s:.2f} x the plain write)\n"
        f"read  {read_s * 1e3:.0f} ms, {whole / read_s / 1e6:.0f} MB of arrays/s; open {open_s * 1e3:.1f} ms, "
        f"verify {verify_s * 1e3:.1f} ms\n"
    )


if __name__ == "__main__":
    main()
