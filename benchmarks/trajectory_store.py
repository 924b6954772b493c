"""Bytes of a stored execution against what its tokens and log-probabilities need by entropy, and write and read times.

Three stores: the generated execution, and to tell the parts apart the same one with all log-probabilities 0, and with
all ids 0. The entropy is that of single ids, and of the four bytes of single log-probabilities: repeated phrases need
less, independent draws cannot.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table as TextTable
from trajectory_workload import generate

from gyre.trajectory.building import build_tree
from gyre.trajectory.execution import ExecutionRecord
from gyre.trajectory.store import TrajectoryStore
from gyre.trajectory.tree import Tree

REPEATS: Final = 5
GOAL: Final = 2.6  # bytes a unique token


def main() -> None:
    """Print the table."""
    tree = build_tree(generate().records)
    kinds = {
        "execution": tree,
        "its ids alone": replace(tree, logprobs=np.zeros_like(tree.logprobs)),
        "its log-probs alone": replace(tree, tokens=np.zeros_like(tree.tokens)),
    }
    table = TextTable("", "B / unique token", "entropy", "write, ms", "read, ms", title=_title(tree))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, kind in kinds.items():
        size, written_s, read_s = stored(ExecutionRecord(kind.execution, "group", 1.0), kind)
        table.add_row(
            name,
            f"{size / kind.unique_tokens:.2f}",
            f"{entropy(kind):.2f}",
            f"{written_s * 1e3:.0f}",
            f"{read_s * 1e3:.0f}",
        )
    console = Console(width=110)
    console.print(table)
    logprobs = tree.logprobs
    near = ", ".join(f"{100 * np.mean(logprobs > -above):.0f} % above -{above:g}" for above in (0.001, 0.01, 0.1))
    console.print(
        f"goal {GOAL} B; log-probabilities: mean {logprobs.mean():.2f}, median {np.median(logprobs):.3f}, {near}, "
        f"{100 * np.mean(logprobs == 0):.3f} % exactly 0"
    )


def _title(tree: Tree) -> str:
    return f"{tree.unique_tokens:,} unique tokens, {tree.sampled_tokens:,} of them sampled"


def stored(record: ExecutionRecord, tree: Tree) -> tuple[int, float, float]:
    """Store and read an execution; return bytes, and the shortest of a few times to write and to read."""
    with tempfile.TemporaryDirectory() as folder:
        store = TrajectoryStore.create(Path(folder) / "store")
        written_s = min(seconds(lambda: store.append([(record, tree)], replace=True)) for _ in range(REPEATS))
        read_s = min(seconds(lambda: store.read(record.execution)) for _ in range(REPEATS))
        return store.size + (store.path / "manifest.json").stat().st_size, written_s, read_s


def seconds(action: Callable[[], object]) -> float:
    """Time an action."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def entropy(tree: Tree) -> float:
    """Bytes of entropy of a token's id and, where it was sampled, log-probability, taken one by one, a unique token."""
    planes = tree.logprobs.view(np.uint8).reshape(-1, tree.logprobs.itemsize).T
    of_logprob = sum(map(entropy_bytes, planes))
    return entropy_bytes(tree.tokens) + of_logprob * tree.sampled_tokens / tree.unique_tokens


def entropy_bytes(values: np.ndarray[Any, Any]) -> float:
    """Bytes of entropy of a value drawn from `values`."""
    counts = np.unique(values, return_counts=True)[1]
    return float(np.log2(len(values)) - (counts * np.log2(counts)).sum() / len(values)) / 8


if __name__ == "__main__":
    main()
