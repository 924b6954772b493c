"""What packing saves on a made-up training step, what it costs, and what a small model gains from it, in one run.

The step is that of `trajectory_workload.py`: executions of about 600 calls that share prefixes. The first table counts
tokens and attention of the forward passes over a row for each call, a row for each selected path, those packed, and
packed with shared prefixes once. Then: the CPU time of packing, against that of a plain copy of the same arrays. Then,
where torch is installed, forward and backward of a small transformer over a small step, rows against trees: one code,
one budget, a dense mask; both must give the same gradient.

    python benchmarks/packing_savings.py [--executions 64] [--token-budget 131072] [--mode bounded] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table
from trajectory_conversation import Shape
from trajectory_workload import MEASURED, step

from gyre.trajectory.advantages import Baseline
from gyre.trajectory.building import build_tree
from gyre.trajectory.making import SampleBuilder
from gyre.trajectory.packing import Load, RowPacking, Savings, TreePacking, calls_load, pack_rows, pack_trees, savings
from gyre.trajectory.samples import Samples
from gyre.trajectory.selection import Mode, Selection

SMALL = Shape(
    calls=60,
    preamble_tokens=200,
    sub_preamble_tokens=80,
    window_tokens=1000,
    output_tokens=12,
    result_tokens=24,
    summary_tokens=30,
    kept_tokens=20,
    sub_agent_every=20,
    sub_agent_calls=12,
    retried=0.03,
    drifted=0.03,
)
SMALL_EXECUTIONS, SMALL_BUDGET = 8, 1536
REPEATS = 3

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """CPU nanoseconds a token of the samples."""

    plan_ns: float
    arrays_ns: float  # all arrays of all micro-steps, made one micro-step at a time
    copy_ns: float  # the four arrays of the samples that rows need, copied with NumPy


@dataclass(frozen=True)
class Model:
    """Forward and backward of the small transformer."""

    rows: Load
    trees: Load
    rows_cpu_s: float
    trees_cpu_s: float
    gradient_difference: float  # relative

    @property
    def speed_up(self) -> float:
        """CPU time over rows, as a multiple of that over trees."""
        return self.rows_cpu_s / self.trees_cpu_s


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what `work` returns, and the CPU-seconds that it took."""
    began_s = time.process_time()
    result = work()
    return result, time.process_time() - began_s


def step_samples(executions: int, shape: Shape, mode: Mode) -> tuple[Samples, Load]:
    """Samples of a generated step, and the load of its calls; only rows are kept."""
    builder = SampleBuilder(Selection(mode=mode), Baseline.MEAN)
    loads = []
    for record, workload in step(executions, max(1, executions // 8), shape):
        tree = build_tree(workload.records)
        loads.append(calls_load([tree.calls]))
        builder.add(record, tree)
    calls = Load(
        sum(load.sequences for load in loads), sum(load.tokens for load in loads), sum(load.attention for load in loads)
    )
    return builder.close(), calls


def cost(pack: Callable[[], RowPacking | TreePacking], samples: Samples) -> Cost:
    """Least CPU time of some repeats, after one that compiles."""
    pack()
    plans, arrays, copies = [], [], []
    for _ in range(REPEATS):
        packing, plan_s = timed(pack)
        plans.append(plan_s)
        arrays.append(timed(lambda packing=packing: sum(len(each) for each in packing))[1])
        fields = (samples.tokens, samples.loss_mask, samples.logprobs, samples.versions)
        copies.append(timed(lambda fields=fields: [values.copy() for values in fields])[1])
    per_token = 1e9 / len(samples.tokens)
    return Cost(min(plans) * per_token, min(arrays) * per_token, min(copies) * per_token)


def model_gain(samples: Samples) -> Model | None:
    """Time the small model over both packings; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    from small_transformer import SmallTransformer

    from gyre.trajectory.objectives import Batch, ppo_loss, token_logprobs

    folded = replace(samples, tokens=samples.tokens % SmallTransformer.VOCABULARY)
    packings = pack_rows(folded, SMALL_BUDGET), pack_trees(folded, SMALL_BUDGET)
    result = savings(*packings)
    torch.manual_seed(0)
    model = SmallTransformer()
    batches = [[Batch.of(each) for each in packing] for packing in packings]

    def gradient(steps: list[Batch]) -> Any:
        model.zero_grad()
        for batch in steps:
            logits = model(batch.tokens, batch.positions, batch.attention_mask())
            near = replace(batch, logprobs=token_logprobs(logits, batch).detach())
            ppo_loss(token_logprobs(logits, near), near)[0].backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    gradients = [gradient(steps) for steps in batches]  # and a warm-up
    cpu_s = [timed(lambda steps=steps: gradient(steps))[1] for steps in batches]
    difference = float((gradients[1] - gradients[0]).norm() / gradients[0].norm())
    return Model(result.rows, result.trees, *cpu_s, difference)


def print_savings(console: Console, result: Savings) -> None:
    """Print the table of loads."""
    table = Table(title=f"Forward passes, budget {result.token_budget:,} tokens")
    for name in ("", "sequences", "M tokens", "G pairs", "steps", "filled", "of rows"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    loads = {
        "a row a call": result.calls,
        "selected rows": result.selected,
        "rows packed": result.rows,
        "trees packed": result.trees,
    }
    for name, load in loads.items():
        if load is not None:
            packed = ("", "") if load.filled is None else (str(load.micro_steps), f"{load.filled:.1%}")
            share = f"{load.tokens / result.selected.tokens:.3f}"
            millions = f"{load.tokens / 1e6:.2f}", f"{load.attention / 1e9:.1f}"
            table.add_row(name, f"{load.sequences:,}", *millions, *packed, share)
    console.print(table)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=64)
    parser.add_argument("--token-budget", type=int, default=131_072)
    parser.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.BOUNDED)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    console = Console()
    (samples, calls), made_s = timed(lambda: step_samples(arguments.executions, MEASURED, arguments.mode))
    console.print(f"{arguments.executions} executions made up and turned into samples in {made_s:.0f} CPU-s")
    budget = max(arguments.token_budget, int(np.diff(samples.row_start).max(initial=1)))
    rows, trees = pack_rows(samples, budget), pack_trees(samples, budget)
    result = savings(rows, trees, calls)
    print_savings(console, result)
    costs = {
        "rows": cost(lambda: pack_rows(samples, budget), samples),
        "trees": cost(lambda: pack_trees(samples, budget), samples),
    }
    for name, each in costs.items():
        console.print(
            f"{name}: plan {each.plan_ns:.2f}, arrays {each.arrays_ns:.1f} ns a token; a copy {each.copy_ns:.2f} ns"
        )
    console.print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB")
    model = model_gain(step_samples(SMALL_EXECUTIONS, SMALL, Mode.BOUNDED)[0])
    if model is None:
        console.print("no torch here: the small model is left out")
    else:
        console.print(
            f"small model: rows {model.rows.tokens:,} in {model.rows.micro_steps}, {model.rows_cpu_s:.2f} CPU-s; "
            f"trees {model.trees.tokens:,} in {model.trees.micro_steps}, {model.trees_cpu_s:.2f} CPU-s; "
            f"{model.speed_up:.2f} x; gradients differ by {model.gradient_difference:.1e}"
        )
    if arguments.json:
        figures = {"savings": result.to_json(), "costs": {name: vars(each) for name, each in costs.items()}}
        arguments.json.write_text(json.dumps(figures | {"model": model and model.speed_up}, indent=2) + "\n")


if __name__ == "__main__":
    main()
