"""What it costs to make training samples of recorded calls: time and memory, against plain yardsticks.

The calls are those of `trajectory_workload.py`: one execution of the measured shape, one of 1 M unique and 100 M input
tokens, and three and ten times the calls of the first. Each input is an array of its own, so that nobody is helped by
inputs that share memory; the last column shows the first execution with inputs that do. Times are CPU-seconds of this
process after a run that compiles, each the best of several rounds in which everything is measured in turn, so that
ratios hold on a noisy machine. The yardsticks are `trajectory_yardsticks.py`: reading each input token once, and
comparing each input with the previous one of its thread; for the rows, a plain copy of their arrays into fresh memory.

Memory is measured in a process of its own, as the largest resident set while the tree is built over that before it
(compiled code of Numba allocates where tracemalloc does not look): what the tree itself takes is within it.

    python benchmarks/trajectory_speed.py [--rounds 7] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table as TextTable
from trajectory_conversation import Counts
from trajectory_memory import Memory
from trajectory_workload import PRESETS, Workload, generate
from trajectory_yardsticks import compare, read

from gyre.trajectory.building import TreeBuilder, build_tree
from gyre.trajectory.call import CallRecord
from gyre.trajectory.check import refusal
from gyre.trajectory.expand import expand
from gyre.trajectory.samples import TOKEN_FIELDS
from gyre.trajectory.selection import Mode, Selection, select
from gyre.trajectory.tree import Tree

TREE_OVER_COMPARE, INPUT_G_PER_S, EXTRA_BYTES, EXPAND_NS = 3.0, 1.0, 16.0, 10.0  # the goals
TREES_ON_THE_WAY = 10  # that the row "call by call" asks for
ALL_PATHS = Selection(mode=Mode.ALL)


class Cost(NamedTuple):
    """CPU-seconds, and those of them that the system's kernel took, for fresh memory in the main."""

    cpu_s: float
    kernel_s: float


@dataclass
class Times:
    """What was done to one execution."""

    read: Cost
    compare: Cost
    check: Cost
    tree: Cost  # checks included
    incremental: Cost  # call by call, with `TREES_ON_THE_WAY` trees
    expand: Cost  # selection, expansion and mask of all paths that add a token
    copy: Cost  # of the arrays of those rows, which asks the system for as much memory


@dataclass
class Figures:
    """What was measured on one execution."""

    workload: str
    counts: Counts
    nodes: int
    leaves: int
    paths: int
    expanded_tokens: int
    times: Times

    @property
    def tree_over_compare(self) -> float:
        """Ratio of the two."""
        return self.times.tree.cpu_s / self.times.compare.cpu_s

    @property
    def input_g_per_s(self) -> float:
        """Input tokens that become a tree, in 1e9 per CPU-second."""
        return self.counts.input_tokens / self.times.tree.cpu_s / 1e9

    @property
    def expand_ns(self) -> float:
        """Nanoseconds for an expanded token."""
        return self.times.expand.cpu_s / self.expanded_tokens * 1e9


def best(rounds: int, works: Mapping[str, Callable[[], object]]) -> dict[str, Cost]:
    """Return the least cost of each work over rounds in which all are done in turn, forwards and backwards.

    So each follows another neighbour in every other round: what follows one that gave much memory back gets it cheaply.
    """
    least: dict[str, Cost] = {}
    results: dict[str, object] = {}  # kept, so that not every round asks the system for its memory anew
    for number in range(rounds):
        for name, work in list(works.items())[:: -1 if number % 2 else 1]:
            kernel_s, began_s = resource.getrusage(resource.RUSAGE_SELF).ru_stime, time.process_time()
            results[name] = work()
            cost = Cost(time.process_time() - began_s, resource.getrusage(resource.RUSAGE_SELF).ru_stime - kernel_s)
            least[name] = min(cost, least.get(name, cost))
    return least


def call_by_call(calls: Sequence[CallRecord]) -> None:
    """Add calls one at a time, and ask for a tree after each tenth of them."""
    builder = TreeBuilder(calls[0].execution)
    every = -(-len(calls) // TREES_ON_THE_WAY)
    for number, call in enumerate(calls, 1):
        builder.add(call)
        if number % every == 0 or number == len(calls):
            builder.tree()


def checked(workload: Workload) -> Tree:
    """Build the tree and hold its counts against those with which the calls were made."""
    tree, counts = build_tree(workload.records), workload.counts
    found, expected = (tree.unique_tokens, tree.sampled_tokens), (counts.unique_tokens, counts.sampled_tokens)
    assert found == expected, f"the tree has {found} unique and sampled tokens, the calls {expected}"
    return tree


def measured(name: str, rounds: int, own_buffers: bool = True) -> Figures:
    """Measure one execution."""
    workload = generate(PRESETS[name], own_buffers=own_buffers)
    calls, tree = workload.records, checked(workload)
    paths = select(tree, ALL_PATHS)
    rows = expand(tree, paths)
    assert int(np.count_nonzero(rows.loss_mask)) == tree.sampled_tokens - _position_zero(tree)
    costs = best(
        rounds,
        {
            "read": lambda: read(calls),
            "compare": lambda: compare(calls),
            "check": lambda: [refusal(call) for call in calls],
            "tree": lambda: build_tree(calls),
            "incremental": lambda: call_by_call(calls),
            "expand": lambda: expand(tree, select(tree, ALL_PATHS)),
            "copy": lambda: [getattr(rows, name).copy() for name in TOKEN_FIELDS],
        },
    )
    return Figures(
        workload=name if own_buffers else f"{name}, shared memory",
        counts=workload.counts,
        nodes=len(tree.node_parent),
        leaves=len(tree.leaf_node),
        paths=len(paths),
        expanded_tokens=len(rows.tokens),
        times=Times(**costs),
    )


def _position_zero(tree: Tree) -> int:
    """Sampled tokens without a predictor."""
    return int(np.count_nonzero((tree.node_owner >= 0) & (tree.node_depth == 0)))


def memory(name: str) -> Memory:
    """Measure memory in a process of its own."""
    script = Path(__file__).with_name("trajectory_memory.py")
    done = subprocess.run([sys.executable, str(script), name], check=True, capture_output=True, text=True)
    return Memory(**json.loads(done.stdout))


def times_table(figures: Sequence[Figures]) -> TextTable:
    """Costs, one column an execution."""
    table = TextTable("", *(one.workload for one in figures), "goal", title="From calls to rows, CPU-ms")
    for column in table.columns[1:]:
        column.justify = "right"

    def row(label: str, cell: Callable[[Figures], str], goal: str = "") -> None:
        table.add_row(label, *(cell(one) for one in figures), goal)

    row("calls / nodes / leaves", lambda one: f"{one.counts.calls} / {one.nodes} / {one.leaves}")
    row("input tokens", lambda one: f"{one.counts.input_tokens / 1e6:.1f} M")
    row(
        "unique / sampled tokens",
        lambda one: f"{one.counts.unique_tokens / 1e6:.3f} / {one.counts.sampled_tokens / 1e6:.3f} M",
    )
    row("expanded tokens (paths)", lambda one: f"{one.expanded_tokens / 1e6:.2f} M ({one.paths})")
    table.add_section()
    row("read all inputs", lambda one: f"{one.times.read.cpu_s * 1e3:.2f}")
    row("compare with the previous", lambda one: f"{one.times.compare.cpu_s * 1e3:.2f}")
    row("check alone", lambda one: f"{one.times.check.cpu_s * 1e3:.2f}")
    row("check and tree, in one go", lambda one: f"{one.times.tree.cpu_s * 1e3:.2f}")
    row(f"call by call, {TREES_ON_THE_WAY} trees", lambda one: f"{one.times.incremental.cpu_s * 1e3:.2f}")
    row("select, expand, mask", lambda one: f"{one.times.expand.cpu_s * 1e3:.2f}")
    row("  in the system's kernel of that", lambda one: f"{one.times.expand.kernel_s * 1e3:.2f}")
    row("plain copy of the rows", lambda one: f"{one.times.copy.cpu_s * 1e3:.2f}")
    table.add_section()
    row("check and tree / compare", lambda one: f"{one.tree_over_compare:.2f} x", f"<= {TREE_OVER_COMPARE:g} x")
    row("G input tokens a second", lambda one: f"{one.input_g_per_s:.2f}", f">= {INPUT_G_PER_S:g}")
    row("ns a unique token", lambda one: f"{one.times.tree.cpu_s / one.counts.unique_tokens * 1e9:.1f}")
    row("ns an expanded token", lambda one: f"{one.expand_ns:.2f}", f"<= {EXPAND_NS:g}")
    row("ns of a plain copy", lambda one: f"{one.times.copy.cpu_s / one.expanded_tokens * 1e9:.2f}")
    return table


def memory_table(memories: Sequence[Memory]) -> TextTable:
    """Bytes a unique token."""
    table = TextTable("bytes a unique token", *(one.workload for one in memories), "goal")
    for column in table.columns[1:]:
        column.justify = "right"
    extra = [f"{one.peak_bytes / one.unique_tokens:.2f}" for one in memories]
    table.add_row("peak while the tree is built", *extra, f"<= {EXTRA_BYTES:g}")
    table.add_row("of which the tree", *(f"{one.tree_bytes / one.unique_tokens:.2f}" for one in memories), "")
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of which the best counts")
    parser.add_argument("--quick", action="store_true", help="only the execution of the measured shape")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    arguments = parser.parse_args()
    names = ["1x"] if arguments.quick else ["1x", "3x", "10x", "long"]
    measured("1x", rounds=1)  # compiles
    figures = [measured(name, arguments.rounds) for name in names]
    figures.append(measured("1x", arguments.rounds, own_buffers=False))
    memories = [memory(name) for name in names]
    console = Console(width=150)
    console.print(times_table(figures))
    console.print(memory_table(memories))
    if arguments.json is not None:
        result = {"executions": [asdict(one) for one in figures], "memory": [asdict(one) for one in memories]}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
