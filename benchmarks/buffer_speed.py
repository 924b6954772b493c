"""Groups through the sample buffer and its storage: time a group at three sizes, and memory; against plain dicts.

All groups are put first, execution by execution, and wait at once; then steps take, read and release them all. Times
are of the processor (this process, and the system for it), so that neighbours on the machine count for less. Each
measurement runs in a process of its own: `python benchmarks/buffer_speed.py` starts them one after the other.
`python benchmarks/buffer_speed.py MEASUREMENT` is one of these.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table
from trajectory_memory import status
from trajectory_workload import step

from gyre.buffer.buffer import SampleBuffer
from gyre.buffer.entry import Entry
from gyre.buffer.settings import BufferSettings, Evict, OnStale, Order
from gyre.buffer.storage import GroupStorage
from gyre.trajectory.building import build_tree
from gyre.trajectory.call import CallRecord
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.store.part import Item

SIZES: Final = (10_000, 30_000, 100_000)
MEMBERS: Final = 8
STEP_GROUPS: Final = 64
TASKS: Final = 997
MEMORY_BYTES: Final = 64 << 20
REAL_EXECUTIONS: Final = 24
PRIME_RL_ROLLOUTS: Final = 3_800  # prime-rl#2796
PRIME_RL_BYTES: Final = 182 << 20  # of one of them
SETTINGS: Final = {
    "default": BufferSettings(),
    "everything": BufferSettings(
        order=Order.NEWEST,
        capacity_groups=200_000,
        evict=Evict.MOST_USED,
        groups_per_task=4,
        max_staleness=100_000,
        on_stale=OnStale.WAIT,
        older_share=0.25,
        max_uses=2,
    ),
}


@dataclass(frozen=True)
class Result:
    """One measurement."""

    groups: int
    put_ns: float  # a group
    take_ns: float  # a group, with its reading and release
    growth_bytes: int = 0  # largest resident set over that before
    disk_bytes: int = 0
    memory_bytes: int = 0  # of the storage
    raw_bytes: int = 0  # of the calls behind it, as they were recorded


def measured(groups: int, put: Callable[[int], object], take: Callable[[], object]) -> Result:
    """Time two loops over groups; `take` ends when none is left."""
    begin = time.process_time_ns()
    for group in range(groups):
        put(group)
    middle = time.process_time_ns()
    take()
    end = time.process_time_ns()
    return Result(groups, (middle - begin) / groups, (end - middle) / groups)


def with_growth(measure: Callable[[], Result]) -> Result:
    """Measure, and see how far the process grows."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the largest resident set starts anew
    before = status("VmRSS")
    result = measure()
    return replace(result, growth_bytes=status("VmHWM") - before)


def small_items() -> list[Item]:
    """A group's executions: 12 calls each, of some hundred tokens in all."""
    generator = np.random.default_rng(1)
    made = []
    for member in range(MEMBERS):
        history, calls = generator.integers(0, 1000, 20, dtype=np.int32), []
        for number in range(12):
            output = generator.integers(0, 1000, 6, dtype=np.int32)
            logprobs = -generator.random(6, dtype=np.float32)
            calls.append(CallRecord(f"e{member}", f"c{number}", number, history, output, logprobs))
            history = np.concatenate((history, output, generator.integers(0, 1000, 4, dtype=np.int32)))
        made.append((ExecutionRecord(f"e{member}", "g", float(member % 2)), build_tree(calls, f"e{member}")))
    return made


def entry(group: int, size: int = 1) -> Entry:
    """A group of the stream: one version for each step's worth of groups, lengths over several powers of two."""
    tokens = 100 << (group * 7 % 11)
    return Entry(group, group % TASKS, group // STEP_GROUPS, float(group), tokens, tokens, size)


def buffer_alone(groups: int, kind: str) -> Result:
    """Take groups through the pure buffer; with older ones, a group passes more than once."""
    buffer = SampleBuffer(SETTINGS[kind], STEP_GROUPS)
    version = groups // STEP_GROUPS

    def take() -> None:
        nonlocal version
        while buffer.ready:
            for _ in range(buffer.available(version)):
                buffer.take(version)
            version += 1
            buffer.consumed(version)

    return measured(groups, lambda group: buffer.add(entry(group), version), take)


def dict_alone(groups: int) -> Result:
    """Do no more than keep entries in a dict, and let them go in the order of their arrival."""
    held: OrderedDict[int, Entry] = OrderedDict()  # a dict's first item is not found in constant time

    def take() -> None:
        while held:
            held.popitem(last=False)

    return measured(groups, lambda group: held.setdefault(group, entry(group)), take)


def copied(items: list[Item]) -> Iterator[Item]:
    """Executions with arrays of their own, as they come from a builder."""
    for record, tree in items:
        yield record, replace(tree, **{name: getattr(tree, name).copy() for name in ("tokens", "logprobs", "versions")})


def storage_and_buffer(groups: int, memory_bytes: int = MEMORY_BYTES) -> Result:
    """Put small groups, execution by execution, and train them all."""
    items = small_items()
    with tempfile.TemporaryDirectory() as folder, GroupStorage(folder, memory_bytes) as storage:
        buffer = SampleBuffer(BufferSettings(), STEP_GROUPS)
        most = [0, 0]

        def put(group: int) -> None:
            for each in copied(items):
                storage.put(group, [each])
            buffer.add(entry(group, storage.size(group)), 0)

        def take() -> None:
            most[:] = storage.disk_bytes, storage.memory_bytes
            version = 0
            while buffer.ready:
                for _ in range(buffer.available(version)):
                    for _ in storage.get(buffer.take(version).group):
                        pass
                version += 1
                for removal in buffer.consumed(version):
                    storage.release(removal.group)

        result = with_growth(lambda: measured(groups, put, take))
        return replace(result, disk_bytes=most[0], memory_bytes=most[1])


def dict_of_items(groups: int) -> Result:
    """Hold the executions of small groups as objects."""
    items = small_items()
    held: OrderedDict[int, list[Item]] = OrderedDict()

    def take() -> None:
        while held:
            for _ in held.popitem(last=False)[1]:
                pass

    return with_growth(lambda: measured(groups, lambda group: held.setdefault(group, list(copied(items))), take))


def real_executions() -> Result:
    """Put and read realistic executions; memory is left to the disk alone."""
    put_ns = get_ns = raw = 0
    with tempfile.TemporaryDirectory() as folder, GroupStorage(folder) as storage:
        for number, (record, workload) in enumerate(step(REAL_EXECUTIONS, REAL_EXECUTIONS // MEMBERS)):
            tree = build_tree(workload.records, record.execution)
            raw += sum(call.input_ids.nbytes + 2 * call.output_ids.nbytes for call in workload.records)
            begin = time.process_time_ns()
            storage.put(number, [(record, tree)])
            middle = time.process_time_ns()
            next(storage.get(number))
            put_ns, get_ns = put_ns + middle - begin, get_ns + time.process_time_ns() - middle
        count = REAL_EXECUTIONS
        return Result(count, put_ns / count, get_ns / count, disk_bytes=storage.disk_bytes, raw_bytes=raw)


MEASUREMENTS: Final[dict[str, Callable[[int], Result]]] = {
    "buffer, default": lambda groups: buffer_alone(groups, "default"),
    "buffer, everything": lambda groups: buffer_alone(groups, "everything"),
    "dict of entries": dict_alone,
    "storage and buffer": storage_and_buffer,
    "dict of trees": dict_of_items,
    "real": lambda _: real_executions(),
}


def in_process(name: str, groups: int) -> Result:
    """Run a measurement in a process of its own."""
    run = [sys.executable, __file__, name, str(groups)]
    return Result(**json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout))


def main() -> None:
    """Print the tables."""
    console = Console(width=120)
    table = Table(
        "",
        *(f"put, {size:,}" for size in SIZES),
        *(f"take, {size:,}" for size in SIZES),
        title="us of processor time a group",
    )
    memory = Table("", "groups", "peak growth, MiB", "bytes a group", "on disk, MiB", "held in memory, MiB")
    for name in tuple(MEASUREMENTS)[:-1]:
        results = [in_process(name, size) for size in SIZES]
        table.add_row(
            name,
            *(f"{result.put_ns / 1e3:.2f}" for result in results),
            *(f"{result.take_ns / 1e3:.2f}" for result in results),
        )
        for result in results if results[0].growth_bytes else []:
            memory.add_row(name, f"{result.groups:,}", *_memory_words(result))
        console.print(f"{name}: done")
    console.print(table, memory)
    console.print(_real_words(in_process("real", REAL_EXECUTIONS)))


def _memory_words(result: Result) -> Iterator[str]:
    beside = result.growth_bytes - result.memory_bytes
    yield f"{result.growth_bytes / 2**20:.0f}"
    yield f"{beside / result.groups:.0f} beside `memory_bytes`"
    yield f"{result.disk_bytes / 2**20:.0f}"
    yield f"{result.memory_bytes / 2**20:.0f}"


def _real_words(result: Result) -> str:
    each, raw = result.disk_bytes / result.groups, result.raw_bytes / result.groups
    as_large = each * PRIME_RL_BYTES / raw
    return (
        f"{result.groups} realistic executions: {raw / 2**20:.0f} MiB of calls each, {each / 2**20:.2f} MiB stored; "
        f"put {result.put_ns / 1e6:.1f} ms, get {result.take_ns / 1e6:.1f} ms. {PRIME_RL_ROLLOUTS:,} of them: "
        f"{PRIME_RL_ROLLOUTS * each / 2**30:.1f} GiB on disk; scaled to {PRIME_RL_BYTES >> 20} MiB of calls each "
        f"{PRIME_RL_ROLLOUTS * as_large / 2**30:.1f} GiB, raw {PRIME_RL_ROLLOUTS * PRIME_RL_BYTES / 2**30:.0f} GiB"
    )


def _one(name: str, groups: int) -> dict[str, Any]:
    return asdict(MEASUREMENTS[name](groups))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        json.dump(_one(sys.argv[1], int(sys.argv[2])), sys.stdout)
    else:
        main()
